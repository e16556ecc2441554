/* Module globals that kernels use by name, and what tensor maps show of their address. */
#include "harness.h"

#include <string.h>

static CUmodule hidden_module(void)
{
    size_t bytes;
    CUmodule module;
    void *image = read_file(SIM_KERNEL_IMAGES "/hidden.fatbin", &bytes);
    OK(cuModuleLoadData(&module, image));
    return module;
}

static CUdeviceptr slots_of(CUmodule module)
{
    CUdeviceptr address;
    size_t bytes;
    OK(cuModuleGetGlobal(&address, &bytes, module, "hidden_slots"));
    ck_assert_uint_eq(bytes, 64 * 8);
    return address;
}

static void store(CUmodule module, CUstream stream, CUdeviceptr value, uint64_t slot)
{
    CUfunction function;
    OK(cuModuleGetFunction(&function, module, "hidden_store"));
    OK(launch_params(function, stream, (void *[]){&value, &slot}));
}

static uint64_t slot_of(CUmodule module, uint64_t slot)
{
    uint64_t value;
    OK(cuMemcpyDtoH(&value, slots_of(module) + 8 * slot, sizeof value));
    return value;
}

/* Each module has its own, though both are the same image. */
START_TEST(kernels_use_the_global_of_their_module)
{
    start(0);
    CUmodule one = hidden_module(), other = hidden_module();
    CUdeviceptr words = device_words(16);
    store(one, CU_STREAM_LEGACY, words, 3);
    store(other, CU_STREAM_LEGACY, words + 8, 3);
    store(one, CU_STREAM_LEGACY, words + 16, 4);
    ck_assert_uint_eq(slot_of(one, 3), words);
    ck_assert_uint_eq(slot_of(other, 3), words + 8);
    ck_assert_uint_eq(slot_of(one, 4), words + 16);
    ck_assert_uint_eq(slot_of(other, 4), 0);
}
END_TEST

START_TEST(a_kernel_follows_an_address_in_a_global)
{
    start(0);
    CUmodule module = hidden_module();
    CUdeviceptr words = device_words(16), out = device_words(16);
    CUfunction function;
    uint64_t slot = 5, count = 16;
    OK(fill(CU_STREAM_LEGACY, words, 77, 16));
    OK(cuMemcpyHtoD(slots_of(module) + 8 * slot, &words, 8));
    OK(cuModuleGetFunction(&function, module, "hidden_load"));
    OK(launch_params(function, CU_STREAM_LEGACY, (void *[]){&slot, &out, &count}));
    ck_assert_uint_eq(word_at(out + 60), 77);
}
END_TEST

static void race_in_a_global(void)
{
    start(0);
    CUmodule module = hidden_module();
    CUdeviceptr words = device_words(16);
    store(module, new_stream(), words, 3);
    store(module, new_stream(), words, 3);
}

START_TEST(accesses_to_globals_are_checked)
{
    RACE(race_in_a_global, "hidden_store", "hidden_store");
}
END_TEST

static void encode(CUtensorMap *map, CUdeviceptr address)
{
    const cuuint64_t dims[1] = {16};
    const cuuint32_t box[1] = {16}, steps[1] = {1};
    OK(cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 1, (void *)(uintptr_t)address, dims, NULL, box,
                              steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

static uint64_t first_word(const CUtensorMap *map)
{
    uint64_t word;
    memcpy(&word, map, sizeof word);
    return word;
}

START_TEST(a_map_begins_with_its_address)
{
    CUtensorMap map;
    start(0);
    CUdeviceptr words = device_words(16);
    encode(&map, words);
    ck_assert_uint_eq(first_word(&map), words);
    OK(cuTensorMapReplaceAddress(&map, (void *)(uintptr_t)(words + 16)));
    ck_assert_uint_eq(first_word(&map), words + 16);
}
END_TEST

START_TEST(an_opaque_map_hides_its_address)
{
    CUtensorMap map;
    knob("SIM_MAPS", "opaque");
    start(0);
    CUdeviceptr words = device_words(16);
    encode(&map, words);
    for (size_t at = 0; at < sizeof map; at += 8) {
        uint64_t word;
        memcpy(&word, (const char *)&map + at, sizeof word);
        ck_assert_uint_ne(word, words);
    }
    ck_assert_uint_eq(~first_word(&map), words);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&map, (void *)(uintptr_t)(words + 4)));
}
END_TEST

SUITE(sim_global, kernels_use_the_global_of_their_module, a_kernel_follows_an_address_in_a_global,
      accesses_to_globals_are_checked, a_map_begins_with_its_address, an_opaque_map_hides_its_address)
