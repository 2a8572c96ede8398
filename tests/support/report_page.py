# SPDX-License-Identifier: BSD-3-Clause
"""Checks a page of `efs report` as a strict reader would.

usage: report_page.py PAGE [TEXT...]
The page must be well nested, have no script, link, load, handler or form, have the policy that
forbids them before any name, and pictures with titles. Each TEXT must be in the visible text.
Prints each fault. Exit status 1 if there is one.
"""
import html.parser
import sys

VOID = {"meta", "rect", "polygon", "br"}
ALLOWED = VOID | set("html head title style body main section h1 h2 p span dl dt dd ul li pre table thead tbody tr th td "
                     "svg desc text".split())
ATTRIBUTES = set("lang charset http-equiv content name class scope role aria-labelledby viewbox id x y width height "
                 "text-anchor points".split())


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.faults, self.open, self.text, self.policy = [], [], [], None
        self.pictures = self.shapes = self.described = self.headings = 0

    def handle_starttag(self, tag, attributes):
        if tag not in ALLOWED:
            self.faults.append(f"element {tag}")
        for name, value in attributes:
            if name not in ATTRIBUTES:
                self.faults.append(f"attribute {name}={value} of {tag}")
        given = dict(attributes)
        if given.get("http-equiv") == "Content-Security-Policy":
            if self.text:
                self.faults.append("the policy comes after text")
            self.policy = given["content"]
        self.pictures += tag == "svg"
        self.shapes += tag in ("rect", "polygon")
        self.described += tag == "desc"
        self.headings += tag in ("h1", "h2")
        if tag == "svg" and given.get("role") != "img":
            self.faults.append("a picture without its role")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> without its beginning")

    def handle_data(self, data):
        if data.strip() and (not self.open or self.open[-1] != "style"):
            self.text.append(data)


def main():
    with open(sys.argv[1], encoding="utf-8", errors="strict") as file:
        content = file.read()
    page = Page()
    page.feed(content)
    page.close()
    faults = page.faults
    if page.open:
        faults.append(f"not closed: {page.open}")
    if page.policy is None or not page.policy.startswith("default-src 'none'") or "script" in page.policy:
        faults.append(f"policy: {page.policy}")
    if "url(" in content or "@import" in content:
        faults.append("a load")
    if any(ord(character) < 32 and character != "\n" or ord(character) == 127 for character in content):
        faults.append("a control character")
    if page.pictures == 0 or page.shapes < page.pictures or page.described != page.pictures:
        faults.append(f"{page.pictures} pictures, {page.shapes} shapes, {page.described} descriptions")
    if page.headings < 3:
        faults.append(f"{page.headings} headings")
    text = " ".join("".join(page.text).split())
    faults += [f"not in the text: {wanted}" for wanted in sys.argv[2:] if wanted not in text]
    print("\n".join(faults))
    sys.exit(bool(faults))


main()
