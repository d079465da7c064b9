# gpurun's hook in the training process. In a rank its modules have no entry in sys.modules: see
# sitecustomize.py.
