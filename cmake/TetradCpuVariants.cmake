# SPDX-License-Identifier: Apache-2.0
# backend/cpu is compiled once for each instruction set, and dispatch.cpp chooses one at run time.
#
# The sources are the same, so that every variant defines the same functions, and inline functions and templates of the standard
# library and of headers besides, which a linker would merge: AVX-512 code could become the one copy that everybody calls. So the
# objects of a variant are first linked into one, where all that is defined becomes local but the function that makes its
# backend, tetrad_cpu_VARIANT. (tests/backend/check-variant-symbols checks that.)
function(tetrad_cpu_variant target variant)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;OPTIONS")
  set(objects ${target}_${variant})
  add_library(${objects} OBJECT EXCLUDE_FROM_ALL ${arg_SOURCES})
  # Unique symbols, which GCC makes of static variables in inline functions, stay global whatever one asks of objcopy.
  target_compile_options(${objects} PRIVATE ${arg_OPTIONS} $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  target_compile_definitions(${objects} PRIVATE TETRAD_CPU_FACTORY=tetrad_cpu_${variant})
  target_link_libraries(${objects} PRIVATE tetrad_ops)
  set(linked ${CMAKE_CURRENT_BINARY_DIR}/${target}_${variant}.o)
  add_custom_command(
    OUTPUT ${linked}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${linked}.all $<TARGET_OBJECTS:${objects}>
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=tetrad_cpu_${variant} ${linked}.all ${linked}
    DEPENDS ${objects} $<TARGET_OBJECTS:${objects}>
    COMMENT "Keeping the ${variant} variant of backend/cpu to itself"
    COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${linked} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  target_sources(${target} PRIVATE ${linked})
  set_property(GLOBAL APPEND PROPERTY TETRAD_CPU_OBJECTS ${linked})
  string(TOUPPER ${variant} name)
  target_compile_definitions(${target} PRIVATE TETRAD_CPU_${name})
endfunction()
