"""What train_net.py of a project has in its configuration: default_argument_parser and get_cfg."""

import argparse
import ast
import os
import sys

import sources

COMMIT = "02b5c4e295e990042a714712c21dc79b731e8833"
PACKAGES = [("detectron2", COMMIT[:8]), "fvcore", "yacs", "torch"]

ENGINE = sources.file("facebookresearch/detectron2", COMMIT, "detectron2/engine/defaults.py", "3dbcd86b")
sources.file("facebookresearch/detectron2", COMMIT, "detectron2/config/defaults.py", "50665173")
sys.path.insert(0, str(sources.checkout("facebookresearch/detectron2", COMMIT)))

from detectron2.config import get_cfg  # noqa: E402


def parser():
    """The parser alone: its module needs the compiled part of detectron2."""
    tree = ast.parse(ENGINE.read_text())
    body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "default_argument_parser"]
    scope = {"argparse": argparse, "os": os, "sys": sys}
    exec(compile(ast.Module(body, []), str(ENGINE), "exec"), scope)
    return scope["default_argument_parser"]()


def parse(case):
    args = parser().parse_args(case.argv[1:])
    cfg = get_cfg()
    cfg.merge_from_file(args.config_file)
    cfg.merge_from_list(args.opts)
    return {
        "precision": "fp16" if cfg.SOLVER.AMP.ENABLED else "fp32",
        "dataloader_workers": cfg.DATALOADER.NUM_WORKERS,
    }
