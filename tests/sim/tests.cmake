# The simulator's own tests.
set(SIM_TEST_SUITES sim_image sim_launch sim_capture sim_modes sim_graph sim_update sim_kinds sim_replay sim_getproc sim_memory sim_vmm sim_stream sim_race sim_order sim_knobs sim_contention sim_global)
set(sim_test_sources "")
foreach(suite IN LISTS SIM_TEST_SUITES)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/test_${suite}.c)
    list(APPEND sim_test_sources ${CMAKE_CURRENT_SOURCE_DIR}/test_${suite}.c)
  endif()
endforeach()
ov_add_check_runner(TARGET sim_tests SOURCES ${sim_test_sources})
target_sources(sim_tests PRIVATE harness.c harness_graph.c)
target_include_directories(sim_tests PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_definitions(sim_tests PRIVATE CUDA_ENABLE_DEPRECATED
  SIM_FIXTURES="${CMAKE_CURRENT_SOURCE_DIR}/fixtures"
  SIM_GRAPH_CONTROL="${CMAKE_SOURCE_DIR}/tests/kernels/graph_control.ptx"
  SIM_KERNEL_IMAGES="${CMAKE_SOURCE_DIR}/tests/kernels/images")
target_link_libraries(sim_tests PRIVATE simcuda Threads::Threads ${CMAKE_DL_LIBS})
add_dependencies(sim_tests simkernels)
ov_add_check_tests(TARGET sim_tests LABELS sim ENVIRONMENT "SIM_KERNELS=$<TARGET_FILE:simkernels>")

# The same programs on a real and on the simulated driver (tests/gpu): against what a real one answered once, and, where
# there is one, against that.
set(SIM_COMPARE ${CMAKE_SOURCE_DIR}/tests/gpu)
add_executable(driver_compare ${SIM_COMPARE}/driver_compare.c ${SIM_COMPARE}/driver_compare_code.c
  ${SIM_COMPARE}/driver_compare_memory.c ${SIM_COMPARE}/driver_compare_capture.c ${SIM_COMPARE}/driver_compare_graph.c
  ${SIM_COMPARE}/driver_compare_rules.c)
target_include_directories(driver_compare SYSTEM PRIVATE ${CUDA_INCLUDE_DIR})
target_link_libraries(driver_compare PRIVATE ov_warnings Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(driver_compare PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
ov_add_test(NAME sim.answers_of_a_real_driver LABELS sim
  COMMAND ${SIM_COMPARE}/driver_compare.sh ${CMAKE_BINARY_DIR} ${SIM_COMPARE}/driver_compare.real.txt
  ENVIRONMENT "SIM_VA_LIMIT=64T")
ov_add_test(NAME driver_compare LABELS gpu COMMAND ${SIM_COMPARE}/driver_compare.sh ${CMAKE_BINARY_DIR})
