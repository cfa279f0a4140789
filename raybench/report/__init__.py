"""Tables, plots and documents; they draw values of ``raybench.analysis`` and compute nothing themselves."""
