"""What a trial is called."""

from __future__ import annotations

from raybench.analysis.labels import setting_words
from raybench.spec import Setting


def test_settings_in_words() -> None:
    setting = Setting(
        precision="bf16", bucket_cap_mb=25, gradient_accumulation=4, gradient_compression="fp16"
    )
    knobs = ("precision", "bucket_cap_mb", "gradient_accumulation", "gradient_compression", "static_graph")
    words = "bf16, 25 MiB buckets, accumulation 4, fp16 compression, no static_graph, NCCL_ALGO=Ring"
    assert setting_words(setting, knobs, {"NCCL_ALGO": "Ring"}) == words
    assert setting_words(setting, ()) == "default"
