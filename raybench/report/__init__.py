"""Tables, plots and documents; they draw values of ``raybench.analysis`` and compute nothing themselves."""

from raybench.report.document import write_report
from raybench.report.terminal import print_summary, terminal_table

__all__ = ["print_summary", "terminal_table", "write_report"]
