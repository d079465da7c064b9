# gpurun's words for the terms of frameworks. None: there is no word.

OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw_apex_fused": "adamw",
    "adamw_bnb_8bit": "adamw-8bit", "adamw_8bit": "adamw-8bit", "adamw_torch_8bit": "adamw-8bit",
    "paged_adamw_8bit": "paged-adamw-8bit", "paged_adamw_32bit": "paged-adamw", "paged_adamw": "paged-adamw",
}
CLASSES = {
    "AdamW8bit": "adamw-8bit", "PagedAdamW8bit": "paged-adamw-8bit", "Adam8bit": "adam-8bit", "PagedAdam8bit": "paged-adam-8bit",
    "PagedAdamW32bit": "paged-adamw", "PagedAdamW": "paged-adamw", "AdamW32bit": "adamw", "SGD8bit": "sgd-8bit", "Lion8bit": "lion-8bit",
    "DeepSpeedCPUAdam": None, "FusedAdam": None,  # Adam or AdamW: see adam
}
ATTENTION = {
    "eager": "eager", "sdpa": "sdpa", "flash": "flash",
    "flash_attention_2": "flash", "flash_attention_3": "flash", "flash_attention_4": "flash",
}
STAGES = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}  # of DeepSpeed's ZeRO
PRECISION = {
    "no": "fp32", "32": "fp32", "32-true": "fp32", "float32": "fp32", "fp32": "fp32",
    "bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16", "bfloat16": "bf16",
    "fp16": "fp16", "16": "fp16", "16-mixed": "fp16", "16-true": "fp16", "float16": "fp16",
    "fp8": "fp8", "transformer-engine": "fp8", "transformer-engine-float16": "fp8",
}


def word(knob, keyword, value):
    """Return gpurun's word for a keyword's value."""
    if value is None:
        return None
    if knob == "precision":
        if isinstance(value, bool):  # bf16=True
            return keyword if value and keyword in ("bf16", "fp16") else "fp32"
        return PRECISION.get(plain(value))
    if knob == "activation_checkpointing":
        return {True: "full", False: "none"}.get(value) if isinstance(value, bool) else str(value)
    if knob == "attention":
        return ATTENTION.get(plain(value))
    if knob == "optimizer":
        return optimizer(value)
    if isinstance(value, bool) or isinstance(value, int):
        return value
    return str(value)


def plain(value):
    return str(getattr(value, "value", value))


def optimizer(value):
    """Return the word for an optimizer that is named as in an argument, or as a class."""
    name = plain(value)
    if name in OPTIMIZERS:
        return OPTIMIZERS[name]
    last = name.rpartition(".")[2]
    if last in CLASSES:
        return CLASSES[last]
    return last.lower().replace("_", "-")


def adam(instance):
    """Return the word for an optimizer: its class, and the settings that decide where one class has several."""
    name = type(instance).__name__
    if name in ("FusedAdam", "DeepSpeedCPUAdam"):
        wide = getattr(instance, "adam_w_mode", None)
        return None if wide is None else "adamw" if wide else "adam"
    if type(instance).__module__.startswith("bitsandbytes"):
        bits = getattr(getattr(instance, "args", None), "optim_bits", 32)
        kind = optimizer(name)
        if bits == 8 and kind is not None and not kind.endswith("-8bit"):
            return kind + "-8bit"
        return kind
    return optimizer(name)
