# SPDX-License-Identifier: Apache-2.0
# OpenBLAS with its C interface: distributions put the header beside, or in a folder of, the C library's own.
find_path(OpenBLAS_INCLUDE_DIR cblas.h
  PATH_SUFFIXES openblas openblas-openmp openblas-pthread x86_64-linux-gnu x86_64-linux-gnu/openblas-openmp
                x86_64-linux-gnu/openblas-pthread aarch64-linux-gnu aarch64-linux-gnu/openblas-openmp
                aarch64-linux-gnu/openblas-pthread
  HINTS /opt/OpenBLAS/include)
find_library(OpenBLAS_LIBRARY openblas PATH_SUFFIXES openblas-openmp openblas-pthread HINTS /opt/OpenBLAS/lib)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR)
if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::OpenBLAS)
  add_library(OpenBLAS::OpenBLAS UNKNOWN IMPORTED)
  set_target_properties(OpenBLAS::OpenBLAS PROPERTIES
    IMPORTED_LOCATION ${OpenBLAS_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${OpenBLAS_INCLUDE_DIR})
endif()
