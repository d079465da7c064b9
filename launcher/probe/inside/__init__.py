# The probe's parts. A rank reads them without an entry in sys.modules: see sitecustomize.py.
