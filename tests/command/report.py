"""The page that report makes: whole, escaped, one file; and how it gets there.

In a browser it is looked at where there is one: browser.py.
"""
import html.parser
import os
import re
import stat
from pathlib import Path

import harness

VOID = {"meta", "link", "br"}
SHAPES = {"rect", "line", "circle"}  # closed by themselves, in a drawing


class Page(html.parser.HTMLParser):
    """Its elements and texts. Fails on what is not closed, or by another than was opened."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.sections = [], [], [], {}
        self.attributes, self.errors = [], []
        self.feed(text)
        self.close()
        self.errors += [f"{tag} stays open" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if len({name for name, _ in attrs}) != len(attrs):
            self.errors.append(f"an attribute twice: {tag} {attrs}")
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self.sections[dict(attrs).get("id")] = len(self.texts)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in SHAPES:
            self.errors.append(f"{tag} closes itself")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"{tag} is closed at {self.getpos()}")

    def handle_data(self, data):
        self.texts.append(data)

    def text(self, section=None):
        start = self.sections[section] if section else 0
        later = [at for at in self.sections.values() if at > start]
        return "".join(self.texts[start:min(later) if section and later else None])


def schemes(style):
    """The colours of both schemes, by name."""
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[:2]
    light = dict(re.findall(r"--([a-z-]+): (#\w{6});", light))
    return light, {**light, **dict(re.findall(r"--([a-z-]+): (#\w{6});", dark))}


def luminance(color):
    parts = [int(color[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
                        for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """As WCAG 2 has it: 4.5 for text, 3 for what is drawn."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class Report(harness.Case):
    command = harness.SCENIC

    def setUp(self):
        super().setUp()
        self.env["TZ"] = "UTC"

    def page(self, which, *words):
        page = Page(self.run_command("report", "--html", "-", *words, env=self.scenic(which)).out)
        self.assertEqual(page.errors, [], which)
        return page

    def write_page(self, path, status=0, **options):
        return self.run_command("report", "--html", path, status=status,
                                env=self.scenic("calm"), **options)

    def test_every_page_is_well_formed(self):
        for which in ("serving", "calm", "odd", "dense", "none", "many", "ranks", "wrong"):
            page = self.page(which)
            self.assertEqual(page.tags[:2], ["html", "head"], which)
            for section in ("timeline", "storms", "kernels", "tail"):
                self.assertIn(section, page.sections, which)

    def test_a_page_says_first_what_to_know(self):
        text = self.page("serving").text()
        for wanted in ("3 kernels ask for variants that nobody planned.", "38 launches waited",
                       "After the seal calls of", "1 variant could not be made", "gpu-17",
                       "30 kernels on 2 devices", "2 running, all sealed; 3 ended",
                       "to 2026-11-30 10:00:00 UTC"):
            self.assertIn(wanted, text)

    def test_a_calm_page_has_no_word_of_trouble(self):
        page = self.page("calm")
        text = page.text()
        for wanted in ("No storm", "No launch waited for a compiler.",
                       "After the seal nothing was missed, compiled or loaded."):
            self.assertIn(wanted, text)
        self.assertNotIn("incidents", page.sections)
        self.assertNotIn("What went wrong", text)

    def test_storms_name_the_line_and_what_to_write_there_the_costly_ones_first(self):
        text = self.page("serving").text("storms")
        places = [text.index(wanted) for wanted in (
            "kernels/silu_mul_fp8_quant.cu:7",
            "  - {name: num_tokens, type: i32, do_not_specialize: true, range: [1, 8192]}",
            "kernels/fused_inv_rope_fp8_quant.cu:12", "kernels/gather_rows.cu:5")]
        self.assertEqual(places, sorted(places))
        self.assertRegex(text, r"num_tokens took 212 different values")
        self.assertRegex(text, r"scale_stride took 31 different states\. The storm guard stopped")
        self.assertIn("and it goes on", text)

    def test_a_kernel_with_a_storm_on_several_devices_has_one_card(self):
        page = self.page("serving")
        self.assertEqual(page.tags.count("article"), 3)
        text = page.text("storms")
        self.assertRegex(text, r"silu_mul_fp8_quant\nOn 2 devices: calls asked for 424 unplanned "
                               r"variants in \d+ min, [\d.]+ a minute, and it goes on; \d+ variants"
                               r" were made, planned ones included; about \d+ min lost: ")
        self.assertRegex(text, r"\nOn device 1: calls asked for 31 unplanned variants in .*, the"
                               r" last one at 09:35:00; .* made, .*; about .* lost to compiling in"
                               r" the background; no launch waited\.\n")
        self.assertEqual(text.count("kernels/silu_mul_fp8_quant.cu:7"), 1)

    def test_the_timeline_has_a_mark_for_each_event_with_what_it_was(self):
        page = self.page("serving")
        text = page.text("timeline")
        marks = page.attributes.count(("class", "mark compile"))
        self.assertEqual(marks, int(re.search(r"Compiles (\d+)", text)[1]))
        self.assertRegex(text, r"09:40:00\.000  failure of lora_shrink, 90 ms.*process 410[01]\n"
                               r'lora_shrink\.cu:31: error: identifier "rank" is undefined')
        self.assertIn("parameter.BLOCK=128, facet.num_tokens=div: 16", text)
        self.assertRegex(text, r"Missed after the seal \d+ kinds of call, newly asked for")
        self.assertIn("missed after the sealparameter.BLOCK=128, facet.num_tokens=value: 4097",
                      page.text("incidents"))
        self.assertIn("the seal of process 4100 became log", text)

    def test_ranks_stand_in_a_table_and_on_the_timeline(self):
        page = self.page("ranks")
        text = page.text("ranks")
        self.assertIn("group tp: 8 ranks, open after 4.2 s; rank 3 compiled 31 (3.9 s) while others"
                      " waited up to 394 ms", text)
        self.assertLess(text.index("group tp"), text.index("group pp: 256 ranks, not open"))
        table = text[:text.index("group pp")]
        self.assertRegex(table, r"34103runs313\.9 s4\.2 s0open")
        self.assertEqual(page.attributes.count(("class", "mark barrier")), 264)
        self.assertRegex(page.text("timeline"), r"warm-up, 4\.2 s, waited for others for \d+ ms, 10"
                                                r" compiled, rank 0 of 8, after the seal|warm-up, "
                                                r"4\.2 s, waited for others for \d+ ms, 10"
                                                r" compiled, rank 0 of 8, process 4100\ntp open")
        self.assertIn("tp 3 of 8", page.text("processes"))
        self.assertNotIn("ranks", self.page("calm").sections)

    def test_more_marks_than_can_be_told_apart_become_columns(self):
        page = self.page("dense")
        columns = page.attributes.count(("class", "mark column compile"))
        self.assertEqual(page.attributes.count(("class", "mark compile")), 0)
        self.assertTrue(50 < columns <= 160, columns)
        text = page.text("timeline")
        total = int(re.search(r"Compiles (\d+)", text)[1])
        # The columns of a lane add up to what the lane has.
        lane = text[text.index("Compiles"):text.index("Loads")]
        self.assertEqual(sum(map(int, re.findall(r"to \d\d:\d\d:\d\d: (\d+)", lane))), total)
        self.assertIn("12,345 before them are counted, but not drawn", text)

    def test_no_text_is_taken_for_markup(self):
        page = self.page("odd")
        allowed = {"html", "head", "meta", "link", "title", "style", "body", "main", "header", "h1",
                   "h2", "h3", "dl", "dt", "dd", "div", "ul", "li", "span", "b", "a", "code", "pre",
                   "p", "section", "article", "svg", "g", "text", "tspan", "rect", "line", "circle",
                   "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "small",
                   "footer", "br"}
        self.assertEqual(set(page.tags) - allowed, set())
        names = {"lang", "charset", "http-equiv", "name", "content", "rel", "href", "class", "id",
                 "title", "role", "aria-label", "aria-hidden", "scope", "colspan", "open", "width",
                 "height", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "dx", "text-anchor"}
        self.assertEqual({name for name, _ in page.attributes} - names, set())
        self.assertIn(("title", "two \"quotes\" & 'more'"), page.attributes)
        text = page.text()
        for wanted in ("<script>alert(1)</script>", "two \"quotes\" & 'more'", "noyau_été",
                       "bad\\xff\\xfe\\x7f", "right\\u202eto left", "line\\x0abreak\\x1b[31m",
                       "<img src=http://127.0.0.1:9/x>", "\"><svg onload=alert(1)>"):
            self.assertIn(wanted, text)
        self.assertIn("  - {name: <i>n</i>}\n    second line", page.text("storms"))
        self.assertNotRegex(text, "[\x00-\x08\x0b-\x1f\x7f\u202e\ufffd]")

    def test_the_page_asks_nobody_and_runs_nothing(self):
        for which in ("serving", "odd"):
            page = self.page(which)
            self.assertNotIn("script", page.tags)
            self.assertIn(("http-equiv", "Content-Security-Policy"), page.attributes)
            policy, = [value for name, value in page.attributes
                       if name == "content" and "default-src" in value]
            self.assertIn("default-src 'none'", policy)
            for name, value in page.attributes:
                self.assertFalse(name.startswith("on"), (name, value))
                if name in ("href", "src"):
                    self.assertRegex(value, r"^(#\w+|data:,)$")

    def test_what_could_not_be_read_is_told(self):
        self.assertIn("Not all could be read", self.page("odd").text())
        self.assertNotIn("Not all could be read", self.page("serving").text())

    def test_nothing_counted_makes_a_page_that_says_so(self):
        page = self.page("none")
        self.assertIn("Nothing was counted.", page.text())
        self.assertIn("Nothing was compiled or loaded", page.text("timeline"))
        self.assertIn("JITCACHE_SAMPLE", page.text("tail"))

    def test_the_tail_has_its_percentiles(self):
        text = self.page("serving").text("tail")
        self.assertRegex(text, r"p50 [\d.]+ us.*\s+p99 [\d.]+ us.*\s+p99\.9 ")

    def test_many_processes_are_folded_away(self):
        self.assertNotIn(("open", None), self.page("many").attributes)
        self.assertIn("300 processes", self.page("many").text("processes"))
        self.assertIn(("open", None), self.page("serving").attributes)

    def test_numbers_of_a_damaged_file_do_no_harm(self):
        text = self.page("wrong").text()
        self.assertIn("18,446,744,073,709,551,615", text)
        self.assertIn("earlier", text)

    def test_a_page_says_how_to_make_it_again(self):
        self.env["JITCACHE_DIR"] = str(self.folder / "it's here")
        text = self.page("serving", "--since", "2026-11-30T09:00", "--pid", "41").text()
        self.assertIn(f"jitcache report --dir '{self.folder}/it'\\''s here'"
                      " --since 2026-11-30T09:00 --pid 41 --html -", text)

    # --- how it looks

    def test_what_is_written_can_be_read_in_light_and_dark(self):
        light, dark = schemes((harness.ROOT / "tools" / "report_style.css").read_text())
        self.assertEqual(set(light), set(dark))
        self.assertNotEqual(light, dark)
        for colors in (light, dark):
            for name in ("text", "muted", "bad", "good", "compile"):
                for ground in ("page", "card"):
                    ratio = contrast(colors[name], colors[ground])
                    self.assertGreaterEqual(ratio, 4.5, (name, ground, colors))
            for name in ("compile", "load", "barrier", "point", "miss", "storm", "failure",
                         "held"):
                self.assertGreaterEqual(contrast(colors[name], colors["page"]), 3, (name, colors))

    # --- where it goes

    def test_a_file_is_replaced_as_a_whole(self):
        path = self.write("page.html", "the old page")
        os.chmod(path, 0o600)
        before = os.stat(path).st_ino
        done = self.write_page(path)
        self.assertEqual(done.out, "")
        self.assertNotEqual(os.stat(path).st_ino, before)
        self.assertEqual(Page(Path(path).read_text(encoding="utf-8")).errors, [])
        self.assertEqual(os.listdir(self.folder).count("page.html"), 1)
        self.assertEqual([name for name in os.listdir(self.folder) if "page.html." in name], [])

    def test_a_new_file_may_be_read_by_whom_the_umask_allows(self):
        path = self.folder / "page.html"
        self.write_page(path, umask=0o027)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o640)

    def test_where_a_link_leads_is_replaced(self):
        self.write("page.html", "old")
        os.symlink("page.html", self.folder / "link.html")
        self.write_page(self.folder / "link.html")
        self.assertTrue((self.folder / "link.html").is_symlink())
        self.assertIn("<html", (self.folder / "page.html").read_text())

    def test_what_is_no_file_is_written_as_it_is(self):
        self.write_page("/dev/null")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        self.assertIn("No space left", self.write_page("/dev/full", status=2).err)

    def test_a_folder_that_is_not_there_is_named(self):
        path = self.folder / "none" / "page.html"
        self.assertIn(f"{path}: its folder does not exist", self.write_page(path, status=2).err)

    def test_json_says_where_the_page_is(self):
        path = self.folder / "page.html"
        told = self.json("report", "--html", path, env=self.scenic("calm"))
        self.assertEqual(told, {"output": str(path), "bytes": path.stat().st_size})

    def test_wrong_use_is_told(self):
        for words, wanted in [([], "write --html FILE"), (["--html", ""], "name of a file"),
                              (["--html", "-", "--json"], "do not both go"),
                              (["--html", "-", "more"], "takes no 'more'"),
                              (["--html", "-", "--pid", "0"], "--pid 0"),
                              (["--html", "-", "--pid", "-4"], "--pid -4"),
                              (["--html", "-", "--pid", "4x"], "--pid 4x"),
                              (["--html", "-", "--pid", "99999999999"], "--pid 99999999999"),
                              (["--html", "-", "--since", "soon"], "--since soon"),
                              (["--html", "-", "--since", "2099-01-01"], "in the future")]:
            message = self.complaint("report", *words, env=self.scenic("none"))
            self.assertIn(wanted, message, words)

    def test_what_the_library_refuses_is_told_and_no_file_is_made(self):
        path = self.folder / "page.html"
        message = self.complaint("report", "--html", path, "--pid", "7",
                                 env=self.scenic("refused"))
        self.assertIn("no process 7", message)
        self.assertFalse(path.exists())


if __name__ == "__main__":
    harness.main()
