#include "value.h"

#include <string.h>
#include <strings.h>

/* Digits with an optional fraction. Returns what follows them, or NULL. */
static const char *parse_decimal(const char *text, uint64_t *whole, double *fraction)
{
    uint64_t value = 0;
    double part = 0, scale = 1;
    const char *start = text;
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return NULL;
        }
        value = value * 10 + digit;
    }
    size_t digits = (size_t)(text - start);
    if (*text == '.') {
        for (text++; *text >= '0' && *text <= '9'; text++, digits++) {
            scale /= 10;
            part += scale * (*text - '0');
        }
    }
    if (digits == 0) {
        return NULL;
    }
    *whole = value;
    *fraction = part;
    return text;
}

bool ov_value_real(const char *text, double *out)
{
    uint64_t whole;
    double fraction;
    text = parse_decimal(text, &whole, &fraction);
    if (!text || *text) {
        return false;
    }
    *out = (double)whole + fraction;
    return true;
}

/* 10^exponent for one from -400 to 400. */
static double power_of_ten(int exponent)
{
    double power = 1;
    for (int i = exponent < 0 ? -exponent : exponent; i > 0; i--) {
        power *= 10;
    }
    return exponent < 0 ? 1 / power : power;
}

bool ov_value_decimal(const char *text, double *out)
{
    const bool negative = *text == '-';
    uint64_t whole;
    double fraction;
    int exponent = 0;
    text = parse_decimal(text + negative, &whole, &fraction);
    if (text && (*text | 0x20) == 'e') {
        const char *start = text += 1 + (text[1] == '+' || text[1] == '-');
        for (; *text >= '0' && *text <= '9' && exponent <= 400; text++) {
            exponent = exponent * 10 + (*text - '0');
        }
        if (text == start || exponent > 400) {
            return false;
        }
        exponent = start[-1] == '-' ? -exponent : exponent;
    }
    if (!text || *text) {
        return false;
    }
    const double value = ((double)whole + fraction) * power_of_ten(exponent);
    if (!(value <= 1.7e308)) {
        return false;
    }
    *out = negative ? -value : value;
    return true;
}

/* A size: "1.5G", "512MiB", "4096", "64 kb". */
bool ov_value_bytes(const char *text, size_t *out)
{
    static const char units[] = "kmgt";
    uint64_t whole;
    double fraction;
    text = parse_decimal(text, &whole, &fraction);
    if (!text) {
        return false;
    }
    text += *text == ' ';
    unsigned shift = 0;
    const char *unit = *text ? strchr(units, *text | 0x20) : NULL;
    if (unit) {
        shift = 10 * (unsigned)(unit - units + 1);
        text++;
        text += (*text | 0x20) == 'i' && (text[1] | 0x20) == 'b';
    }
    text += (*text | 0x20) == 'b';
    if (*text || whole > (SIZE_MAX >> shift) - 1) {
        return false;
    }
    *out = ((size_t)whole << shift) + (size_t)(fraction * (double)((size_t)1 << shift));
    return true;
}

bool ov_value_flag(const char *text, bool *out)
{
    static const char *const words[][4] = {{"0", "no", "off", "false"}, {"1", "yes", "on", "true"}};
    for (int value = 0; value < 2; value++) {
        for (int i = 0; i < 4; i++) {
            if (strcasecmp(text, words[value][i]) == 0) {
                *out = value;
                return true;
            }
        }
    }
    return false;
}

/* The elements of a list with commas. Returns false at its end; an empty element has length 0. */
bool ov_value_element(const char **list, const char **element, size_t *length)
{
    if (!*list) {
        return false;
    }
    *element = *list;
    *length = strcspn(*list, ",");
    *list = (*list)[*length] ? *list + *length + 1 : NULL;
    while (*length && **element == ' ') {
        (*element)++;
        (*length)--;
    }
    while (*length && (*element)[*length - 1] == ' ') {
        (*length)--;
    }
    return true;
}

/* One ordinal, or a range first-last, of a device list. */
static bool parse_ordinals(const char *element, size_t length, uint64_t *bits)
{
    const char *const end = element + length;
    unsigned bound[2] = {0, 0};
    int bounds = 0;
    do {
        const char *start = element;
        unsigned value = 0;
        for (; element < end && *element >= '0' && *element <= '9' && value < 64; element++) {
            value = value * 10 + (unsigned)(*element - '0');
        }
        if (element == start || value > 63) {
            return false;
        }
        bound[bounds++] = value;
    } while (bounds < 2 && element < end && *element++ == '-');
    if (element != end) {
        return false;
    }
    for (unsigned i = bound[0]; i <= bound[bounds - 1]; i++) {
        *bits |= (uint64_t)1 << i;
    }
    return bound[0] <= bound[bounds - 1];
}

bool ov_value_devices(const char *text, uint64_t *out)
{
    uint64_t bits = 0;
    const char *element;
    size_t length;
    if (strcasecmp(text, "all") == 0) {
        *out = UINT64_MAX;
        return true;
    }
    while (ov_value_element(&text, &element, &length)) {
        if (!parse_ordinals(element, length, &bits)) {
            return false;
        }
    }
    *out = bits;
    return true;
}
