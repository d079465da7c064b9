-- An environment module for Lmod. Put it at gpurun/VERSION.lua below a folder of MODULEPATH, and the binary at
-- VERSION/bin/gpurun below this folder:
local folder = "/opt/apps/gpurun"

help([[gpurun runs PyTorch training jobs in place of torchrun, and rescues them when they run out of memory.]])
whatis("Name: gpurun")
whatis("Version: " .. myModuleVersion())
whatis("Description: runs a PyTorch training job in place of torchrun, and rescues it from running out of memory")
whatis("URL: https://github.com/gpurun/gpurun")

prepend_path("PATH", pathJoin(folder, myModuleVersion(), "bin"))
