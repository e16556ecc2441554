#include "nvinfo.h"

#include <stdlib.h>

enum format { FORMAT_NONE = 1, FORMAT_BYTE = 2, FORMAT_HALF = 3, FORMAT_SIZED = 4 };

enum attribute {
    ATTRIBUTE_PARAM_CBANK = 0x0a,
    ATTRIBUTE_KPARAM_INFO = 0x17,
    ATTRIBUTE_CBANK_PARAM_SIZE = 0x19,
    ATTRIBUTE_KPARAM_INFO_2 = 0x45,
};

struct record {
    uint8_t format, attribute;
    uint16_t value;
    const uint8_t *payload; /* `value` bytes when format is FORMAT_SIZED */
};

struct kparam {
    uint32_t index;
    uint16_t ordinal, offset;
    uint32_t word;
};

struct cbank {
    uint32_t symbol;
    uint16_t base, total;
};

/* What one pass over the records gathers. */
struct gathered {
    struct ov_param *param; /* NULL in the counting pass */
    uint32_t count;         /* parameter records seen */
    uint32_t base;          /* 0 if not stated */
    uint32_t total_bytes;   /* UINT32_MAX: not stated yet */
};

static bool is_param(const struct record *record)
{
    return record->attribute == ATTRIBUTE_KPARAM_INFO || record->attribute == ATTRIBUTE_KPARAM_INFO_2;
}

/* 1: a record; 0: the end; -1: the records do not fill the section exactly. */
static int next_record(struct ov_view *view, size_t *at, struct record *record)
{
    if (*at == view->bytes) {
        return 0;
    }
    if (!ov_view_need(view, *at, 4)) {
        return -1;
    }
    record->format = view->data[*at];
    record->attribute = view->data[*at + 1];
    memcpy(&record->value, view->data + *at + 2, sizeof record->value);
    record->payload = NULL;
    *at += 4;
    if (record->format == FORMAT_SIZED) {
        if (!ov_view_need(view, *at, record->value)) {
            return -1;
        }
        record->payload = view->data + *at;
        *at += record->value;
    }
    /* An unknown format has an unknown length: nothing after it can be trusted. */
    return record->format >= FORMAT_NONE && record->format <= FORMAT_SIZED ? 1 : -1;
}

static bool take_param(struct gathered *gathered, const struct record *record, uint32_t expected)
{
    struct kparam info;

    if (record->format != FORMAT_SIZED || record->value != sizeof info) {
        return false;
    }
    memcpy(&info, record->payload, sizeof info);
    gathered->count++;
    if (!gathered->param) {
        return true;
    }
    /* A slot is filled once; records come in any order. size 0 marks a free slot, and is refused as a size. */
    const uint32_t size = record->attribute == ATTRIBUTE_KPARAM_INFO ? info.word >> 18 : info.word & 0xffffffu;
    if (info.ordinal >= expected || gathered->param[info.ordinal].size != 0 || size == 0) {
        return false;
    }
    gathered->param[info.ordinal] = (struct ov_param){info.offset, size};
    return true;
}

static bool take_total(struct gathered *gathered, const struct record *record)
{
    uint32_t total = record->value;

    if (record->attribute == ATTRIBUTE_PARAM_CBANK) {
        struct cbank bank;
        if (record->format != FORMAT_SIZED || record->value != sizeof bank) {
            return false;
        }
        memcpy(&bank, record->payload, sizeof bank);
        total = bank.total;
        gathered->base = bank.base;
    } else if (record->format != FORMAT_HALF) {
        return false;
    }
    if (gathered->total_bytes != UINT32_MAX && gathered->total_bytes != total) {
        return false;
    }
    gathered->total_bytes = total;
    return true;
}

static bool gather(struct ov_view records, struct gathered *gathered, uint32_t expected)
{
    struct record record;
    size_t at = 0;
    int more;

    while ((more = next_record(&records, &at, &record)) > 0) {
        bool good = true;
        if (is_param(&record)) {
            good = take_param(gathered, &record, expected);
        } else if (record.attribute == ATTRIBUTE_PARAM_CBANK || record.attribute == ATTRIBUTE_CBANK_PARAM_SIZE) {
            good = take_total(gathered, &record);
        }
        if (!good) {
            return false;
        }
    }
    return more == 0;
}

int ov_nvinfo_read(struct ov_view records, struct ov_param **param, uint32_t *param_count)
{
    struct gathered counted = {NULL, 0, 0, UINT32_MAX};
    struct gathered filled = {NULL, 0, 0, UINT32_MAX};

    if (!gather(records, &counted, 0)) {
        return OV_IMAGE_MALFORMED;
    }
    if (counted.count == 0) {
        if (counted.total_bytes != UINT32_MAX && counted.total_bytes != 0) {
            return OV_IMAGE_MALFORMED;
        }
        *param = NULL;
        *param_count = 0;
        return OV_IMAGE_OK;
    }
    if (counted.total_bytes == UINT32_MAX) {
        return OV_IMAGE_MALFORMED; /* nothing to hold the records against */
    }
    filled.param = calloc(counted.count, sizeof *filled.param);
    if (!filled.param) {
        return OV_IMAGE_NO_MEMORY;
    }
    if (!gather(records, &filled, counted.count) ||
        !ov_params_plausible(filled.param, filled.count, counted.base, counted.total_bytes)) {
        free(filled.param);
        return OV_IMAGE_MALFORMED;
    }
    *param = filled.param;
    *param_count = filled.count;
    return OV_IMAGE_OK;
}
