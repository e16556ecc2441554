/*
 * overshot plan: pass time against budget, as a picture. No library and no locale: numbers are written with a point,
 * since setlocale() is never called.
 */
#include "plan.h"

#include <math.h>

#define WIDTH  860.0
#define HEIGHT 500.0
#define LEFT   86.0
#define RIGHT  28.0
#define TOP    76.0
#define BOTTOM 66.0

struct axis {
    double low, high, step; /* in its unit */
    double from, to;        /* on the page */
};

static double on_page(const struct axis *axis, double value)
{
    return axis->from + (axis->to - axis->from) * (value - axis->low) / (axis->high - axis->low);
}

/* Steps of 1, 2 or 5 times a power of ten, about `count` of them. */
static struct axis choose_axis(double low, double high, double count, double from, double to)
{
    static const double nice[] = {1, 2, 5, 10};
    const double rough = high > low ? (high - low) / count : 1;
    double power = 1;
    while (power > rough) {
        power /= 10;
    }
    while (power * 10 <= rough) {
        power *= 10;
    }
    double step = power;
    for (int i = 0; i < 4 && step < rough; i++) {
        step = power * nice[i];
    }
    struct axis axis = {0, 0, step, from, to};
    axis.low = (double)(long long)(low / step) * step;
    axis.high = axis.low;
    while (axis.high < high * (1 + 1e-9)) {
        axis.high += step;
    }
    return axis;
}

static int digits_of(double step)
{
    return step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
}

/* Profile names come from outside. */
static void put_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<') {
            fputs("&lt;", out);
        } else if (*text == '&') {
            fputs("&amp;", out);
        } else if ((unsigned char)*text >= 0x20) {
            fputc(*text, out);
        }
    }
}

static void draw_grid(const struct axis *x, const struct axis *y, FILE *out)
{
    for (int i = 0; y->low + i * y->step <= y->high * (1 + 1e-9); i++) {
        const double value = y->low + i * y->step, at = on_page(y, value);
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, at,
                WIDTH - RIGHT, at);
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n", LEFT - 8, at + 4,
                digits_of(y->step), value);
    }
    for (int i = 0; x->low + i * x->step <= x->high * (1 + 1e-9); i++) {
        const double value = x->low + i * x->step, at = on_page(x, value);
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", at, TOP, at,
                HEIGHT - BOTTOM);
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.*f</text>\n", at,
                HEIGHT - BOTTOM + 18, digits_of(x->step), value);
    }
}

static double value_of(const struct ov_plan *plan, unsigned line)
{
    return (line == 0 ? plan->resident_s : line == 1 ? plan->bound_s : plan->cycle_s) * 1e3;
}

static void draw_line(const struct plan_curve *curve, const struct axis *x, const struct axis *y, unsigned line,
                      const char *class, FILE *out)
{
    fprintf(out, "<polyline class=\"%s\" points=\"", class);
    for (size_t i = 0; i < curve->count; i++) {
        fprintf(out, "%s%.1f,%.1f", i > 0 ? " " : "", on_page(x, plan_gib(curve->point[i].budget_pages)),
                on_page(y, value_of(&curve->point[i].plan, line)));
    }
    fputs("\"/>\n", out);
}

static void draw_points(const struct plan_curve *curve, const struct axis *x, const struct axis *y, FILE *out)
{
    for (size_t i = 0; i < curve->count; i++) {
        const struct ov_plan *plan = &curve->point[i].plan;
        fprintf(out,
                "<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"><title>%.2f GiB: %.2f ms, at least %.2f ms; "
                "ring %.3f GiB, %.2f GiB copied</title></circle>\n",
                on_page(x, plan_gib(curve->point[i].budget_pages)), on_page(y, plan->cycle_s * 1e3),
                plan_gib(curve->point[i].budget_pages), plan->cycle_s * 1e3, plan->bound_s * 1e3,
                plan_gib(plan->ring_pages), plan_gib(plan->cycle_pages));
    }
}

static void draw_legend(FILE *out)
{
    static const struct {
        const char *class, *text;
    } row[] = {{"plan", "plan"}, {"bound", "no plan is faster"}, {"resident", "all weights resident"}};
    double x = LEFT;
    for (int i = 0; i < 3; i++) {
        fprintf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"56\" x2=\"%.1f\" y2=\"56\"/>\n", row[i].class, x, x + 28);
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"60\">%s</text>\n", x + 34, row[i].text);
        x += i == 0 ? 90 : 170;
    }
}

void plan_svg(const struct plan_curve *curve, FILE *out)
{
    double most = 0;
    for (size_t i = 0; i < curve->count; i++) {
        const double time = value_of(&curve->point[i].plan, 2);
        most = time > most ? time : most;
    }
    const struct axis x = choose_axis(plan_gib(curve->point[0].budget_pages),
                                      plan_gib(curve->point[curve->count - 1].budget_pages), 8, LEFT, WIDTH - RIGHT);
    const struct axis y = choose_axis(0, most, 6, HEIGHT - BOTTOM, TOP);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
            "font-family=\"sans-serif\">\n"
            "<style>.grid{stroke:#e3e6ea;stroke-width:1}.tick{font-size:12px;fill:#4a5360}"
            ".label{font-size:13px;fill:#222}.title{font-size:16px;fill:#111;font-weight:bold}"
            "polyline,.plan,.bound,.resident{fill:none;stroke-linejoin:round}.plan{stroke:#0b62a4;stroke-width:2.2}"
            ".bound{stroke:#c2410c;stroke-width:1.6;stroke-dasharray:6 4}"
            ".resident{stroke:#6b7280;stroke-width:1.4;stroke-dasharray:2 3}.point{fill:#0b62a4}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text class=\"title\" x=\"%.1f\" y=\"30\">",
            WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    put_text(out, curve->profile->program != NULL ? curve->profile->program : curve->path);
    fputs(": time of a cycle against the budget</text>\n", out);
    draw_legend(out);
    draw_grid(&x, &y, out);
    draw_line(curve, &x, &y, 0, "resident", out);
    draw_line(curve, &x, &y, 2, "plan", out);
    draw_line(curve, &x, &y, 1, "bound", out);
    draw_points(curve, &x, &y, out);
    fprintf(out,
            "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">device memory for weights and ring "
            "(GiB)</text>\n<text class=\"label\" transform=\"translate(22 %.1f) rotate(-90)\" "
            "text-anchor=\"middle\">cycle (ms)</text>\n</svg>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, (TOP + HEIGHT - BOTTOM) / 2);
}
