#!/usr/bin/env python3
"""Names the folders with a cuda.h, one a line: of toolkits, CUDA_HOME and wheels: ROOT"""
import glob
import os
import sys

folders = ["/usr/local/cuda/include", os.environ.get("CUDA_HOME", "") + "/include"]
folders += glob.glob(sys.argv[1] + "/build-env/*/nvidia/cuda_runtime/include")
print("\n".join(sorted({os.path.realpath(folder) for folder in folders
                        if os.path.exists(folder + "/cuda.h")})))
