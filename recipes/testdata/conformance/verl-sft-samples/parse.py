"""As verl-sft: the same trainer."""

import importlib.util
import pathlib

spec = importlib.util.spec_from_file_location("trainer", pathlib.Path(__file__).parent.parent / "verl-sft" / "parse.py")
trainer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trainer)

PACKAGES = trainer.PACKAGES
parse = trainer.parse
