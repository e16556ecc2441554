/* The digest that tests compare with a kernel's is the sum that its header defines, for every length. */
#include <check.h>

#include "tests/kernels/probe_digest.h"

enum { WORDS = 200 };

static uint32_t by_definition(const uint32_t *word, uint64_t count)
{
    uint32_t sum = 0;
    for (uint64_t k = 0; k < count; k++) {
        sum = sum * 31u + word[k];
    }
    return sum;
}

START_TEST(is_the_sum_of_its_definition)
{
    uint32_t word[WORDS];

    for (uint32_t k = 0; k < WORDS; k++) {
        word[k] = (k + 1) * 2654435761u;
    }
    for (uint64_t first = 0; first < 3; first++) {
        for (uint64_t count = 0; first + count <= WORDS; count++) {
            ck_assert_uint_eq(probe_digest_of(word + first, count), by_definition(word + first, count));
        }
    }
}
END_TEST

Suite *probe_digest_suite(void);
Suite *probe_digest_suite(void)
{
    Suite *suite = suite_create("probe_digest");
    TCase *tcase = tcase_create("probe_digest");

    tcase_add_test(tcase, is_the_sum_of_its_definition);
    suite_add_tcase(suite, tcase);
    return suite;
}
