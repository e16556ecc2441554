# ov_link_old_glibc(<shared library>): the library then runs with glibc OV_GLIBC_MAX and newer, whatever newer glibc
# it is built with.
#
# A stand-in for libc.so.6 is made from the compiler's own libc: the same symbols, each at its newest version that is
# not newer than OV_GLIBC_MAX, and none of what came later. Linked against it, every reference gets the old version,
# those of static libraries of the distribution too, and what does not exist in the old glibc is an error at link
# time. The few names that only headers of a newer glibc make up (stat, __isoc23_strtoul, ...) come from
# cmake/glibc_compat.c.
#
# Before glibc 2.34, dlopen() and most of pthread were libraries of their own. They are not named as needed, so that a
# process that never uses CUDA loads nothing; every process that does has them, because the driver needs them.
# References to them must stay lazy: no -z now, no -fno-plt, and no address of such a function in a table.
set(OV_GLIBC_MAX 2.28)
find_program(OV_READELF readelf REQUIRED DOC "GNU readelf") # llvm-readelf prints versions in another form
set(OV_OLD_GLIBC OFF)
if(NOT OVERSHOT_SANITIZE AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(OV_OLD_GLIBC ON)
endif()

function(ov_link_old_glibc target)
  if(NOT OV_OLD_GLIBC)
    return()
  endif()
  if(NOT TARGET ov_old_glibc)
    execute_process(COMMAND ${CMAKE_C_COMPILER} ${CMAKE_C_COMPILER_ARG1} -print-file-name=libc.so.6
      OUTPUT_VARIABLE libc OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${CMAKE_C_COMPILER} ${CMAKE_C_COMPILER_ARG1} -print-file-name=libc_nonshared.a
      OUTPUT_VARIABLE nonshared OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    set(linker_name ld-linux-x86-64.so.2)
    if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
      set(linker_name ld-linux-aarch64.so.1)
    endif()
    execute_process(COMMAND ${CMAKE_C_COMPILER} ${CMAKE_C_COMPILER_ARG1} -print-file-name=${linker_name}
      OUTPUT_VARIABLE linker OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    set(stand_in ${CMAKE_BINARY_DIR}/old_glibc/libc.so.6)
    add_custom_command(OUTPUT ${stand_in} VERBATIM
      COMMAND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/old_glibc.sh ${libc} ${OV_GLIBC_MAX} ${stand_in}
        ${OV_READELF} ${CMAKE_C_COMPILER} ${CMAKE_C_COMPILER_ARG1}
      DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/old_glibc.sh ${libc})
    add_custom_target(ov_old_glibc_file DEPENDS ${stand_in})
    add_library(ov_glibc_compat OBJECT ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/glibc_compat.c)
    target_link_libraries(ov_glibc_compat PRIVATE ov_warnings)
    add_library(ov_old_glibc INTERFACE)
    add_dependencies(ov_old_glibc ov_old_glibc_file)
    target_link_options(ov_old_glibc INTERFACE -nodefaultlibs -Wl,-z,defs)
    # libc_nonshared.a first: its pthread_atfork() is the one that every libc.so.6 can serve. The stand-in is given as
    # a flag: CMake would make -lc of the name of a library that is yet to be built.
    target_link_libraries(ov_old_glibc INTERFACE ${nonshared} -Wl,${stand_in} gcc
      -Wl,--push-state,--as-needed,${linker},--pop-state) # __tls_get_addr
    set_property(TARGET ov_old_glibc PROPERTY INTERFACE_LINK_DEPENDS ${stand_in})
  endif()
  add_dependencies(${target} ov_old_glibc_file)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-fplt>)
  target_link_options(${target} PRIVATE -Wl,-z,lazy)
  target_link_libraries(${target} PRIVATE $<TARGET_OBJECTS:ov_glibc_compat> ov_old_glibc)
endfunction()
