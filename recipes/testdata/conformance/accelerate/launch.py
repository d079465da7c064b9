"""What accelerate launch sets for the script.

stdin: a JSON list of command lines, each a list of words behind "accelerate launch".
stdout, last line: a JSON list of the variables that differ from the environment.
"""

import json
import os
import sys

from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env, prepare_simple_launcher_cmd_env


def environment(words):
    args, defaults, precision_from_config = _validate_launch_command(launch_command_parser().parse_args(words))
    if args.use_deepspeed:  # as launch_command does
        fields = list(defaults.deepspeed_config.keys()) if defaults else []
        args.deepspeed_fields_from_accelerate_config = ",".join(fields + ["mixed_precision"] * precision_from_config)
        _, env = prepare_deepspeed_cmd_env(args)
    elif args.use_fsdp or args.multi_gpu:
        env = prepare_multi_gpu_env(args)
    else:
        _, env = prepare_simple_launcher_cmd_env(args)
    return {k: v for k, v in env.items() if os.environ.get(k) != v}


print(json.dumps([environment(words) for words in json.load(sys.stdin)]))
