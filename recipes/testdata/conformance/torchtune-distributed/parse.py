"""As torchtune: the recipes for several devices are configured alike."""

import importlib.util
import pathlib

spec = importlib.util.spec_from_file_location("single_device", pathlib.Path(__file__).parent.parent / "torchtune" / "parse.py")
single_device = importlib.util.module_from_spec(spec)
spec.loader.exec_module(single_device)

PACKAGES = single_device.PACKAGES
parse = single_device.parse
