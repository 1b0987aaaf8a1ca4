# SPDX-License-Identifier: Apache-2.0
# cuDNN: CUDNN::cudnn, and CUDNN_VERSION of its header. Looks below CUDNN_ROOT, in the system's folders and in the CUDA
# toolkit's.
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
             HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT} PATH_SUFFIXES lib lib64)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)

if(CUDNN_INCLUDE_DIR)
  file(GLOB version_headers ${CUDNN_INCLUDE_DIR}/cudnn_version*.h)
  foreach(header IN LISTS version_headers)
    file(STRINGS ${header} lines REGEX "^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) +[0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
    if(numbers)
      string(REPLACE ";" "." CUDNN_VERSION "${numbers}")
      break()
    endif()
  endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES
    IMPORTED_LOCATION ${CUDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
endif()
