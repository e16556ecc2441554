/* overshot plan: the command line, and the plans. */
#include "plan.h"

#include "command.h"
#include "runtime/options.h"
#include "runtime/value.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the command line ---- */

enum key {
    KEY_BUDGET = 1000,
    KEY_POINTS,
    KEY_LINK,
    KEY_RING,
    KEY_TIERS,
    KEY_HOST_LIMIT,
    KEY_STRATEGY,
    KEY_MODE,
    KEY_SLOWDOWN,
    KEY_SVG,
    KEY_JSON,
    KEY_EXPLAIN
};

static const struct argp_option options[] = {
    {"budget", KEY_BUDGET, "SIZE[..SIZE]", 0,
     "device memory for weights and ring: a size, a percentage of the weights, or two with .. between for a curve "
     "(default: the profile's; if it has none, a curve from the least that works to everything)",
     0},
    {"points", KEY_POINTS, "N", 0, "budgets of a curve, from 2 to 1000 (default 16)", 0},
    {"link", KEY_LINK, "GB/S", 0, "speed of the link for large copies (default: as measured)", 0},
    {"ring", KEY_RING, "SIZE", 0, "the ring (default auto)", 0},
    {"tiers", KEY_TIERS, "WORDS", 0, "where weights may be placed: resident,streamed,host (default all)", 0},
    {"host-limit", KEY_HOST_LIMIT, "SIZE", 0, "host memory for weights that are not resident (default: the profile's)",
     0},
    {"strategy", KEY_STRATEGY, "WORD", 0, "auto, knapsack, greedy, nth:N or spread (default auto)", 0},
    {"mode", KEY_MODE, "WORD", 0,
     "memory: the fastest within the budget; latency: the least memory at --slowdown (default memory)", 0},
    {"slowdown", KEY_SLOWDOWN, "PERCENT", 0, "what a cycle may take longer than with everything resident (default 0)",
     0},
    {"svg", KEY_SVG, "FILE", 0, "draw the curve", 0},
    {"json", KEY_JSON, NULL, 0, "the plan, or the curve, as JSON", 0},
    {"explain", KEY_EXPLAIN, "WEIGHT", 0, "one weight, by its name or number: where it is, why, and what it waits for",
     0},
    {0},
};

struct amount {
    double value;
    bool percent; /* of the weights */
};

struct request {
    const char *path, *svg, *explain;
    struct amount low, high;
    bool budget, curve, json;
    size_t points;
    double link;
    struct ov_options defaults; /* for values that options of the run time take, too */
    const char *value[OV_OPTION_COUNT];
};

static bool parse_amount(const char *text, size_t length, struct amount *amount)
{
    char copy[64];
    size_t bytes;
    if (length == 0 || length >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    amount->percent = copy[length - 1] == '%';
    if (amount->percent) {
        copy[length - 1] = '\0';
        return ov_value_real(copy, &amount->value) && amount->value > 0 && amount->value <= 100;
    }
    if (!ov_value_bytes(copy, &bytes) || bytes < OV_PROFILE_PAGE) {
        return false;
    }
    amount->value = (double)bytes;
    return true;
}

static bool parse_budget(const char *text, struct request *request)
{
    const char *dots = strstr(text, "..");
    request->budget = true;
    request->curve = dots != NULL;
    if (dots == NULL) {
        return parse_amount(text, strlen(text), &request->high);
    }
    return parse_amount(text, (size_t)(dots - text), &request->low) &&
           parse_amount(dots + 2, strlen(dots + 2), &request->high);
}

/* Options that the run time has, too, are checked by its table. */
static bool take_option(const char *name, const char *value, struct argp_state *state)
{
    struct request *request = state->input;
    char accepts[256];
    for (size_t i = 0; i < OV_OPTION_COUNT; i++) {
        if (strcmp(ov_option_table[i].name, name) == 0) {
            if (!ov_option_valid(&ov_option_table[i], value)) {
                ov_option_accepts(&ov_option_table[i], accepts, sizeof(accepts));
                argp_error(state, "%s is not accepted; it takes %s", value, accepts);
                return false;
            }
            request->value[i] = value;
        }
    }
    return true;
}

static const struct {
    enum key key;
    const char *name;
} shared_options[] = {{KEY_RING, "RING"},         {KEY_TIERS, "TIERS"}, {KEY_HOST_LIMIT, "HOST_LIMIT"},
                      {KEY_STRATEGY, "STRATEGY"}, {KEY_MODE, "MODE"},   {KEY_SLOWDOWN, "SLOWDOWN"}};

static error_t parse(int key, char *word, struct argp_state *state)
{
    struct request *request = state->input;
    double number;
    for (size_t i = 0; i < sizeof(shared_options) / sizeof(shared_options[0]); i++) {
        if ((enum key)key == shared_options[i].key) {
            return take_option(shared_options[i].name, word, state) ? 0 : EINVAL;
        }
    }
    switch (key) {
    case KEY_BUDGET:
        if (!parse_budget(word, request)) {
            argp_error(state, "--budget=%s: not a size of at least 2M, a percentage, or two of them with .. between",
                       word);
        }
        return 0;
    case KEY_POINTS:
        if (!ov_value_real(word, &number) || number < 2 || number > 1000 || number != (double)(size_t)number) {
            argp_error(state, "--points=%s: not a whole number from 2 to 1000", word);
        }
        request->points = (size_t)number;
        return 0;
    case KEY_LINK:
        if (!ov_value_real(word, &request->link) || request->link <= 0) {
            argp_error(state, "--link=%s: not a speed in GB/s", word);
        }
        return 0;
    case KEY_SVG:
        request->svg = word;
        return 0;
    case KEY_JSON:
        request->json = true;
        return 0;
    case KEY_EXPLAIN:
        request->explain = word;
        return 0;
    case ARGP_KEY_ARG:
        if (request->path != NULL) {
            argp_error(state, "unexpected \"%s\"", word);
        }
        request->path = word;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no profile is named");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- what to plan ---- */

static const struct request *values; /* of the call under way: the table's reader takes no context */

static const char *value_of(const char *variable)
{
    for (size_t i = 0; i < OV_OPTION_COUNT; i++) {
        if (strcmp(ov_option_table[i].name, variable + strlen(OV_OPTION_PREFIX)) == 0) {
            return values->value[i];
        }
    }
    return NULL;
}

static size_t total_pages(const struct ov_plan_input *input)
{
    size_t pages = 0;
    for (size_t i = 0; i < input->unit_count; i++) {
        pages += input->unit[i].pages;
    }
    return pages;
}

static size_t pages_of(const struct amount *amount, const struct ov_plan_input *input)
{
    const double pages =
        amount->percent ? (double)total_pages(input) * amount->value / 100 : amount->value / (double)OV_PROFILE_PAGE;
    return pages < 1 ? 1 : pages > 1e15 ? (size_t)1e15 : (size_t)pages;
}

/* Two of the largest weight that may be streamed. */
static size_t least_budget(const struct ov_plan_input *input)
{
    size_t largest = 1;
    for (size_t i = 0; i < input->unit_count; i++) {
        const struct ov_plan_unit *unit = &input->unit[i];
        largest = (unit->may & OV_TIER_BIT(OV_TIER_STREAMED)) && !unit->sparse && unit->pages > largest ? unit->pages
                                                                                                        : largest;
    }
    return 2 * largest;
}

/* As if all copies were faster or slower by one factor: the largest are as fast as asked for. */
static void set_link(struct ov_profile_input *made, double gb_per_s)
{
    const size_t count = made->input.rate_count;
    const double pages_per_s = gb_per_s * 1e9 / (double)OV_PROFILE_PAGE;
    const double factor = count > 0 ? pages_per_s / made->rate[count - 1].pages_per_s : 1;
    for (size_t i = 0; i < count; i++) {
        made->rate[i].pages_per_s *= factor;
    }
    made->input.link_pages_per_s = pages_per_s;
}

static void set_options(const struct request *request, struct ov_profile_input *made)
{
    struct ov_plan_input *input = &made->input;
    const struct ov_options *set = &request->defaults;
    if (request->link > 0) {
        set_link(made, request->link);
    }
    if (set->ring.kind == OV_AMOUNT_BYTES) {
        input->ring_request_pages = (set->ring.bytes + OV_PROFILE_PAGE - 1) / OV_PROFILE_PAGE;
    }
    if (set->host_limit.kind == OV_AMOUNT_BYTES) {
        input->host_limit_pages = set->host_limit.bytes / OV_PROFILE_PAGE;
    }
    input->tiers = set->tiers;
    input->strategy = (enum ov_plan_strategy)set->strategy.word;
    input->nth = set->strategy.number;
    input->mode = set->mode == OV_OPT_MODE_LATENCY ? OV_PLAN_LATENCY : OV_PLAN_MEMORY;
    input->slowdown = set->slowdown / 100;
}

/* The budgets, ascending. */
static bool set_budgets(const struct request *request, struct plan_curve *curve)
{
    const struct ov_plan_input *input = &curve->input;
    const size_t all = total_pages(input);
    const bool drawn = request->curve || request->svg != NULL || (!request->budget && input->budget_pages == 0);
    size_t high = request->budget                     ? pages_of(&request->high, input)
                  : drawn || input->budget_pages == 0 ? all
                                                      : input->budget_pages;
    size_t low = request->curve ? pages_of(&request->low, input) : least_budget(input);
    low = drawn ? low : high;
    if (low > high && !request->curve) {
        low = high;
    }
    curve->count = drawn ? (request->points > 0 ? request->points : 16) : 1;
    curve->point = calloc(curve->count, sizeof(*curve->point));
    for (size_t i = 0; curve->point != NULL && low <= high && i < curve->count; i++) {
        curve->point[i].budget_pages = curve->count > 1 ? low + (high - low) * i / (curve->count - 1) : high;
    }
    return curve->point != NULL;
}

/* ---- everything ---- */

const char *plan_weight_name(const struct ov_profile *profile, uint32_t weight, char *room, size_t room_bytes)
{
    if (profile->weight[weight].name != NULL) {
        return profile->weight[weight].name;
    }
    snprintf(room, room_bytes, "weight %u", weight);
    return room;
}

/* By name, else by number. */
static bool find_weight(const struct ov_profile *profile, const char *text, uint32_t *weight)
{
    double number;
    for (size_t i = 0; i < profile->weight_count; i++) {
        if (profile->weight[i].name != NULL && strcmp(profile->weight[i].name, text) == 0) {
            *weight = (uint32_t)i;
            return true;
        }
    }
    if (!ov_value_real(text, &number) || number != (double)(uint32_t)number ||
        number >= (double)profile->weight_count) {
        return false;
    }
    *weight = (uint32_t)number;
    return true;
}

static int draw(const struct request *request, const struct plan_curve *curve)
{
    FILE *file = fopen(request->svg, "w");
    if (file == NULL) {
        return fail(1, "%s: %s", request->svg, strerror(errno));
    }
    plan_svg(curve, file);
    return fclose(file) == 0 ? 0 : fail(1, "%s: %s", request->svg, strerror(errno));
}

static int show(const struct request *request, const struct plan_curve *curve)
{
    uint32_t weight = 0;
    bool done = true;
    if (request->explain != NULL && !find_weight(curve->profile, request->explain, &weight)) {
        return fail(1, "%s: no weight is named \"%s\", nor is that a number below %zu", curve->path, request->explain,
                    curve->profile->weight_count);
    }
    int status = request->svg != NULL ? draw(request, curve) : 0;
    if (request->json) {
        done = plan_json(curve, stdout);
    } else if (request->explain != NULL) {
        done = plan_text_explain(curve, weight, stdout);
    } else if (curve->count > 1) {
        plan_text_curve(curve, stdout);
    } else {
        plan_text(curve, stdout);
    }
    return done ? status : fail(1, "out of memory");
}

static int make_plans(const struct request *request, struct plan_curve *curve)
{
    if (!set_budgets(request, curve)) {
        return fail(1, "out of memory");
    }
    if (curve->point[curve->count - 1].budget_pages == 0) {
        return fail(EXIT_OWN_ERROR, "overshot plan: the first budget of a curve is larger than the last");
    }
    for (size_t i = 0; i < curve->count; i++) {
        curve->input.budget_pages = curve->point[i].budget_pages;
        if (!ov_plan_make(&curve->input, &curve->point[i].plan)) {
            return fail(1, "out of memory");
        }
    }
    return show(request, curve);
}

int command_plan(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "PROFILE.json",
        .doc =
            "Says what would happen to a program that was profiled: which weights stay, what a cycle takes, and what "
            "it "
            "takes at least.\vA profile is what OVERSHOT_PROFILE_DIR gets; runtime/profile.h describes it. Times are "
            "of "
            "the steady state, one cycle after the other. Exit status: 0; 1 if the profile cannot be read; 125 if the "
            "command line is wrong.",
    };
    struct request request = {0};
    struct ov_profile profile;
    struct ov_profile_input made;
    char error[512];
    error_t result = argp_parse(&argp, argc, argv, 0, NULL, &request);
    if (result) {
        return fail(EXIT_OWN_ERROR, "%s", strerror(result));
    }
    values = &request;
    if (!ov_options_load(&request.defaults, value_of, error, sizeof(error))) {
        return fail(EXIT_OWN_ERROR, "%s", error);
    }
    if (!ov_profile_load(request.path, &profile, error)) {
        return fail(1, "%s: %s", request.path, error);
    }
    int status = 1;
    if (ov_profile_plan_input(&profile, &made)) {
        set_options(&request, &made);
        struct plan_curve curve = {.path = request.path, .profile = &profile, .input = made.input};
        status = make_plans(&request, &curve);
        for (size_t i = 0; i < curve.count; i++) {
            ov_plan_free(&curve.point[i].plan);
        }
        free(curve.point);
        ov_profile_free_input(&made);
    } else {
        fail(1, "out of memory");
    }
    ov_profile_free(&profile);
    return status;
}
