# Tests that run a program on the simulated driver with the library preloaded into it (tests/engine/run.sh). The budget is
# 22 MiB, and the driver counts with us, unless they say otherwise.
#
#   ov_engine_test(<label> <name> <program> [ARGUMENT...] [BUDGET b] [DRIVER target] [ENVIRONMENT VAR=value...])
#       Test <label>.<name>.
#   ov_engine_program(<label> t_<topic> CASE... [LIBRARIES l...] [PLAIN])
#       Makes the program from t_<topic>.c, on the rig, unless it is there; tests <label>.<topic>.<case>. A case is
#       "name", "name:variant" (which is named case_variant and runs `name`), either followed by "|VAR=value" as often as
#       needed. PLAIN: each once more, as <case>_without, on the driver alone.

function(ov_engine_test label name program)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "BUDGET;DRIVER" "ENVIRONMENT")
  if(NOT arg_DRIVER)
    set(arg_DRIVER simcuda)
  endif()
  if(NOT arg_BUDGET)
    set(arg_BUDGET 22M)
  endif()
  ov_add_test(NAME ${label}.${name} LABELS ${label}
    ENVIRONMENT OVERSHOT_BUDGET=${arg_BUDGET} SIM_KERNELS=$<TARGET_FILE:simkernels> ${arg_ENVIRONMENT}
    COMMAND ${CMAKE_SOURCE_DIR}/tests/engine/run.sh ${CMAKE_CURRENT_BINARY_DIR}/log/${name} $<TARGET_FILE:overshot>
      $<TARGET_FILE_DIR:${arg_DRIVER}> $<TARGET_FILE:${program}> ${arg_UNPARSED_ARGUMENTS})
endfunction()

function(ov_engine_program label program)
  cmake_parse_arguments(PARSE_ARGV 2 arg "PLAIN" "" "LIBRARIES")
  if(NOT TARGET ${program})
    add_executable(${program} ${program}.c)
    target_link_libraries(${program} PRIVATE engine_rig ${arg_LIBRARIES} ov_warnings)
    set_target_properties(${program} PROPERTIES SKIP_BUILD_RPATH ON)
  endif()
  string(REGEX REPLACE "^t_" "" topic ${program})
  foreach(entry IN LISTS arg_UNPARSED_ARGUMENTS)
    string(REPLACE "|" ";" environment ${entry})
    list(POP_FRONT environment case)
    string(REGEX REPLACE ":.*$" "" base ${case})
    string(REPLACE ":" "_" name ${case})
    ov_engine_test(${label} ${topic}.${name} ${program} ${base} ENVIRONMENT ${environment})
    if(arg_PLAIN)
      ov_add_test(NAME ${label}.${topic}.${name}_without LABELS ${label}
        ENVIRONMENT SIM_KERNELS=$<TARGET_FILE:simkernels> ${environment}
        COMMAND ${CMAKE_SOURCE_DIR}/tests/engine/plain.sh $<TARGET_FILE_DIR:simcuda> $<TARGET_FILE:${program}> ${base})
    endif()
  endforeach()
endfunction()
