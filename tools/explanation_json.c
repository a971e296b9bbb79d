#include "explanation.h"

#include "output.h"

// Lines of a differing text that are told.
#define MAX_LINES 1000

static json_t *json_of_side(const struct jc_explained *side)
{
    if (!side->entry)
        return json_null();
    return json_pack("{s:s, s:s, s:o, s:o, s:f, s:I}", "key", side->key, "kind",
                     jc_kind_name(side->record.kind), "kernel", jc_json_text(side->kernel), "arch",
                     jc_json_text(side->entry->label), "compile_seconds",
                     (double) side->entry->cost_ns / 1e9, "created_ms",
                     (json_int_t) side->entry->created_ms);
}

static json_t *json_of_value(const char *value)
{
    return value ? jc_json_text(value) : json_null();
}

// Takes as many lines as are `left`.
static json_t *json_of_diff_lines(const struct jc_diff_line *lines, size_t count, size_t *left)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count && *left; i++, --*left)
        json_array_append_new(array, jc_json_text_of(lines[i].text, lines[i].size));
    return array;
}

static json_t *json_of_hunks(const struct jc_diff *diff, bool *complete)
{
    json_t *hunks = json_array();
    size_t left = MAX_LINES, total = 0;
    for (size_t i = 0; i < diff->num_hunks; i++) {
        const struct jc_diff_hunk *hunk = &diff->hunks[i];
        total += hunk->num_a + hunk->num_b;
        if (!left)
            continue;
        json_t *a = json_of_diff_lines(diff->a + hunk->a, hunk->num_a, &left);
        json_t *b = json_of_diff_lines(diff->b + hunk->b, hunk->num_b, &left);
        json_array_append_new(hunks, json_pack("{s:I, s:o, s:I, s:o}", "line_a",
                                               (json_int_t) hunk->a + 1, "a", a, "line_b",
                                               (json_int_t) hunk->b + 1, "b", b));
    }
    *complete = total <= MAX_LINES;
    return hunks;
}

void jc_explanation_print_json(const struct jc_explanation *explanation)
{
    json_t *list = json_array(), *texts = json_array();
    for (size_t i = 0; i < explanation->comparison.num_differences; i++) {
        const struct jc_difference *each = &explanation->comparison.differences[i];
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:o}", "what",
                                              each->what, "name", jc_json_text(each->name),
                                              "a", json_of_value(each->a), "b",
                                              json_of_value(each->b), "meaning",
                                              jc_json_text(each->meaning)));
    }
    for (size_t i = 0; i < JC_NUM_TEXTS; i++) {
        const struct jc_text_difference *text = &explanation->comparison.texts[i];
        if (!jc_text_differs(text))
            continue;
        bool complete;
        json_t *hunks = json_of_hunks(&text->diff, &complete);
        json_array_append_new(texts, json_pack("{s:s, s:o, s:b}", "what", text->what, "hunks",
                                               hunks, "complete", (int) complete));
    }
    json_t *last = NULL;
    if (explanation->nearest)
        last = json_pack("{s:I, s:I}", "older", (json_int_t) explanation->nearest->older,
                         "compared", (json_int_t) explanation->nearest->compared);
    jc_print_json(json_pack("{s:o, s:o, s:b, s:b, s:o, s:o, s:o*}", "a",
                            json_of_side(&explanation->a), "b", json_of_side(&explanation->b),
                            "same", (int) jc_explanation_is_one(explanation), "same_kernel",
                            (int) jc_explanation_is_of_one_kernel(explanation), "differences", list,
                            "texts", texts, "last", last));
}
