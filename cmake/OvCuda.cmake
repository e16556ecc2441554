# Finds cuda.h 12.4 or newer, the only part of the CUDA toolkit that the build needs. Sets CUDA_INCLUDE_DIR.
# As a script (cmake -P) it only says whether there is one.
set(OV_CUDA_VERSION_MIN 12040)

# The version that <dir>/cuda.h declares, 0 where there is none.
function(ov_cuda_version dir result)
  set(version 0)
  if(EXISTS ${dir}/cuda.h)
    file(STRINGS ${dir}/cuda.h line REGEX "^#define CUDA_VERSION [0-9]+" LIMIT_COUNT 1)
    if(line MATCHES "CUDA_VERSION ([0-9]+)")
      set(version ${CMAKE_MATCH_1})
    endif()
  endif()
  set(${result} ${version} PARENT_SCOPE)
endfunction()

function(ov_find_cuda)
  set(places)
  if(CUDA_INCLUDE_DIR)
    list(APPEND places ${CUDA_INCLUDE_DIR})
  else()
    foreach(root IN ITEMS "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}")
      if(root)
        list(APPEND places ${root}/include ${root}/targets/x86_64-linux/include ${root}/targets/sbsa-linux/include)
      endif()
    endforeach()
    file(GLOB toolkits LIST_DIRECTORIES true /usr/local/cuda /usr/local/cuda-* /opt/cuda /opt/cuda-*)
    list(SORT toolkits COMPARE NATURAL ORDER DESCENDING)
    list(TRANSFORM toolkits APPEND /include)
    file(GLOB wheels LIST_DIRECTORIES true
      $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/cu*/include
      $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/cuda_runtime/include
      $ENV{CONDA_PREFIX}/include $ENV{CONDA_PREFIX}/targets/*/include
      /usr/local/lib/python3*/dist-packages/nvidia/cu*/include
      /usr/local/lib/python3*/dist-packages/nvidia/cuda_runtime/include
      /usr/local/lib/python3*/site-packages/nvidia/cu*/include
      $ENV{HOME}/.local/lib/python3*/site-packages/nvidia/cu*/include)
    list(APPEND places ${toolkits} /usr/include /usr/local/include /usr/lib/cuda/include ${wheels})
  endif()

  set(seen "")
  foreach(place IN LISTS places)
    ov_cuda_version(${place} version)
    if(version GREATER_EQUAL OV_CUDA_VERSION_MIN)
      if(NOT CMAKE_SCRIPT_MODE_FILE)
        set(CUDA_INCLUDE_DIR ${place} CACHE PATH "Folder of cuda.h (12.4 or newer)" FORCE)
      endif()
      message(STATUS "cuda.h: ${place} (CUDA_VERSION ${version})")
      return()
    elseif(version)
      string(APPEND seen "\n  ${place}/cuda.h is version ${version}, too old")
    endif()
  endforeach()
  list(JOIN places "\n    " listed)
  message(FATAL_ERROR
    "cuda.h of CUDA 12.4 or newer was not found.${seen}\n"
    "Looked in:\n    ${listed}\n"
    "Install one of (headers only, no GPU or driver is needed):\n"
    "  NVIDIA's apt or dnf repository: package cuda-cudart-dev-13-0 (or -12-4 and newer), which puts it below /usr/local/cuda-13.0\n"
    "  Python wheel: pip install nvidia-cuda-runtime-cu12 (12.4 or newer) inside an active virtual environment\n"
    "or name the folder that holds it: cmake -DCUDA_INCLUDE_DIR=/path/to/include (also: CUDA_HOME, CUDA_PATH)")
endfunction()

ov_find_cuda()
