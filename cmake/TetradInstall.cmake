# SPDX-License-Identifier: Apache-2.0
# `make install`, and the package of `make deb`: the program, both libraries, headers, and what find_package(tetrad) and
# pkg-config read. scripts/check-install proves it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # tests are not installed, so installing does not wait for them

# The static library has everything below src/: the C interface, and C++ without a promise of compatibility. MPI and NCCL are not
# among what it is linked with: parallel/ alone calls them, and its headers are not installed.
function(tetrad_collect_objects folder result)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  set(objects)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(excluded ${target} EXCLUDE_FROM_ALL)  # what is compiled only to see that it compiles
    if(type MATCHES "STATIC_LIBRARY|OBJECT_LIBRARY" AND NOT excluded)
      list(APPEND objects $<TARGET_OBJECTS:${target}>)
    endif()
  endforeach()
  foreach(inner IN LISTS folders)
    tetrad_collect_objects(${inner} more)
    list(APPEND objects ${more})
  endforeach()
  set(${result} ${objects} PARENT_SCOPE)
endfunction()
tetrad_collect_objects(${CMAKE_SOURCE_DIR}/src/tetrad objects)
get_property(cpu_objects GLOBAL PROPERTY TETRAD_CPU_OBJECTS)  # made from objects, so that they are none of a target's
list(APPEND objects ${cpu_objects})
add_library(tetrad_static STATIC EXCLUDE_FROM_ALL ${objects})
set_target_properties(tetrad_static PROPERTIES OUTPUT_NAME tetrad EXPORT_NAME static LINKER_LANGUAGE CXX)

# Projects reach the headers and, statically, the libraries behind ours; the shared library keeps those to itself.
set(yaml_cpp "$<IF:$<TARGET_EXISTS:yaml-cpp::yaml-cpp>,yaml-cpp::yaml-cpp,yaml-cpp>")  # 0.8 has both names, 0.7 only the second
foreach(library tetrad_static tetrad_shared)
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
target_link_libraries(tetrad_static PUBLIC fmt::fmt PRIVATE ${yaml_cpp} Threads::Threads)
set(static_dependencies fmt yaml-cpp Threads)
if(TETRAD_WITH_CUDA)
  target_link_libraries(tetrad_static PRIVATE CUDA::cudart_static CUDA::cublasLt ${CMAKE_DL_LIBS})
  list(APPEND static_dependencies CUDAToolkit)
  if(CUDNN_FOUND)
    target_link_libraries(tetrad_static PRIVATE CUDNN::cudnn)
    list(APPEND static_dependencies CUDNN)
  endif()
endif()

install(TARGETS tetrad)
install(TARGETS tetrad_shared EXPORT tetrad_shared)
install(TARGETS tetrad_static EXPORT tetrad_static)
install(FILES src/tetrad/c/tetrad.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tetrad/c)
install(DIRECTORY src/tetrad/numerics src/tetrad/core src/tetrad/ops DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tetrad
        FILES_MATCHING PATTERN "*.h")
install(DIRECTORY configs examples DESTINATION ${CMAKE_INSTALL_DATADIR}/tetrad)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The manual and the completions are what the program itself prints.
if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
  function(tetrad_install_output file folder)
    install(CODE "execute_process(COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} \"$<TARGET_FILE:tetrad>\" ${ARGN}
                    OUTPUT_FILE \"${CMAKE_BINARY_DIR}/package/${file}\" COMMAND_ERROR_IS_FATAL ANY)")
    install(FILES ${CMAKE_BINARY_DIR}/package/${file} DESTINATION ${folder})
  endfunction()
  tetrad_install_output(tetrad.1 ${CMAKE_INSTALL_MANDIR}/man1 man)
  tetrad_install_output(tetrad ${CMAKE_INSTALL_DATADIR}/bash-completion/completions completion bash)
  # zsh looks into the first folder, but below /usr Debian's looks into the second.
  tetrad_install_output(_tetrad ${CMAKE_INSTALL_DATADIR}/zsh/site-functions completion zsh)
  install(FILES ${CMAKE_BINARY_DIR}/package/_tetrad DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  tetrad_install_output(tetrad.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d completion fish)
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tetrad)
configure_package_config_file(cmake/tetradConfig.cmake.in ${CMAKE_BINARY_DIR}/package/tetradConfig.cmake
                              INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/tetradConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/tetradConfig.cmake ${CMAKE_BINARY_DIR}/package/tetradConfigVersion.cmake
              cmake/FindCUDNN.cmake DESTINATION ${package_folder})
foreach(kind static shared)
  install(EXPORT tetrad_${kind} NAMESPACE tetrad:: FILE tetrad-${kind}.cmake DESTINATION ${package_folder})
endforeach()
file(RELATIVE_PATH TETRAD_PREFIX_OF_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/tetrad.pc.in ${CMAKE_BINARY_DIR}/package/tetrad.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/tetrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The Tetrad maintainers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Pretrain language models in NVFP4, a 4-bit format, with exact numerics")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libfmt-dev, libyaml-cpp-dev")  # to link the static library
include(CPack)
