package page

import (
	"embed"
	"fmt"
	"html/template"
	"regexp"
	"strings"
)

//go:embed templates
var files embed.FS

var templates = template.Must(template.ParseFS(files, "templates/*.html"))

// templateData is the data of a template. It has nothing of a link: those values go into the slots.
type templateData struct {
	Tag, Direction    string
	Text              *texts
	Heading, Sentence string // of an error page
}

// marker matches a slot in a template, [[name]], and the conditions [[if name]], [[unless name]] and [[end]].
var marker = regexp.MustCompile(`\[\[(?:(if|unless) )?([A-Za-z]+)\]\]`)

// compile executes a template. It panics if the result is not a valid page: the templates are embedded in the program. Texts name slots
// in the same way as templates.
func compile(name string, data templateData) page {
	var html strings.Builder
	if err := templates.ExecuteTemplate(&html, name+".html", data); err != nil {
		panic(err)
	}
	p, err := parsePage(unindent(html.String()))
	if err != nil {
		panic(fmt.Sprintf("page %s, language %s: %v", name, data.Tag, err))
	}
	return p
}

// unindent removes the indentation and the empty lines of a template.
func unindent(html string) string {
	var b strings.Builder
	for line := range strings.Lines(html) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func parsePage(html string) (page, error) {
	type condition struct {
		piece int
		at    position
	}
	var p page
	var open []condition
	var at position
	end := 0
	for _, m := range marker.FindAllStringSubmatchIndex(html, -1) {
		text, name := html[end:m[0]], html[m[4]:m[5]]
		end = m[1]
		at.advance(text)
		if name == "end" {
			if len(open) == 0 || open[len(open)-1].at != at {
				return page{}, fmt.Errorf("[[end]] without a condition in the same element, after %q", text)
			}
			p.pieces = append(p.pieces, piece{text: text})
			p.pieces[open[len(open)-1].piece].next = len(p.pieces)
			open = open[:len(open)-1]
			continue
		}
		slot, known := slotNamed(name)
		if !known {
			return page{}, fmt.Errorf("unknown slot %s", name)
		}
		next := piece{text: text, slot: slot, then: stepFill}
		switch {
		case m[2] >= 0:
			next.then = map[string]step{"if": stepIf, "unless": stepUnless}[html[m[2]:m[3]]]
			open = append(open, condition{len(p.pieces), at})
		case at.markup != inText && at.markup != inValue:
			return page{}, fmt.Errorf("slot %s is neither in text nor between double quotes", name)
		}
		p.pieces = append(p.pieces, next)
	}
	at.advance(html[end:])
	if len(open) > 0 || at.markup != inText {
		return page{}, fmt.Errorf("the page ends with %d open conditions, inside <%s>", len(open), at.element)
	}
	p.pieces = append(p.pieces, piece{text: html[end:]})
	p.policy = policyFor(html)
	return p, nil
}

func slotNamed(name string) (Slot, bool) {
	for s, known := range slotNames {
		if known == name {
			return Slot(s), true
		}
	}
	return 0, false
}

// policyFor returns a Content-Security-Policy that allows what is on the page and nothing else.
func policyFor(html string) []string {
	policy := "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; img-src https:; style-src 'nonce-[[nonce]]'"
	if strings.Contains(html, "<script") {
		policy += "; script-src 'nonce-[[nonce]]'"
	}
	if strings.Contains(html, `"iframe"`) {
		policy += "; frame-src intent:"
	}
	return strings.Split(policy, "[[nonce]]")
}

// position is a position in the HTML of the templates, which has no comments and all attribute values between double quotes. compile
// uses it to refuse a slot in a tag, a script or a style, where the escaping of its value would not be enough. html/template cannot
// check that: it never sees the values of slots.
type position struct {
	markup  markup
	element string // the element of the tag or code
}

type markup uint8

const (
	inText markup = iota
	inTag
	inValue // of an attribute
	inCode  // a script or a style
)

// advance moves past text.
func (p *position) advance(text string) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case p.markup == inText && c == '<', p.markup == inCode && strings.HasPrefix(text[i:], "</"+p.element):
			p.markup = inTag
			name := text[i+1:]
			p.element = name[:len(name)-len(strings.TrimLeft(name, "/abcdefghijklmnopqrstuvwxyz0123456789!"))]
		case p.markup == inTag && c == '"':
			p.markup = inValue
		case p.markup == inValue && c == '"':
			p.markup = inTag
		case p.markup == inTag && c == '>':
			if p.element == "script" || p.element == "style" {
				p.markup = inCode
			} else {
				*p = position{}
			}
		}
	}
}
