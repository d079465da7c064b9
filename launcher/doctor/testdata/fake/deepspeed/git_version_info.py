installed_ops = {"cpu_adam": True}
