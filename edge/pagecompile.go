package main

import (
	"embed"
	"fmt"
	"html/template"
	"regexp"
	"strings"
)

//go:embed pages
var pageFiles embed.FS

var pageTemplates = template.Must(template.ParseFS(pageFiles, "pages/*.html"))

// pageData is what a template is executed with. Nothing of a link is in it: that goes into the slots.
type pageData struct {
	Tag, Direction    string
	Text              *texts
	Heading, Sentence string // of a page about an error
}

// marker is what stands for a slot in a template, and what makes a part of it conditional.
var marker = regexp.MustCompile(`\[\[(?:(if|unless) )?([A-Za-z]+)\]\]`)

// compile executes a template, and panics when it cannot be a page: all of them come with the program. Texts that name a slot do it
// in the same way as templates.
func compile(name string, data pageData) page {
	var html strings.Builder
	if err := pageTemplates.ExecuteTemplate(&html, name+".html", data); err != nil {
		panic(err)
	}
	p, err := parsePage(unindent(html.String()))
	if err != nil {
		panic(fmt.Sprintf("page %s, language %s: %v", name, data.Tag, err))
	}
	return p
}

// unindent drops what only made the template readable.
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
				return page{}, fmt.Errorf("an end whose condition is not in the same place, after %q", text)
			}
			p.pieces = append(p.pieces, piece{text: text})
			p.pieces[open[len(open)-1].piece].next = len(p.pieces)
			open = open[:len(open)-1]
			continue
		}
		slot, known := slotNamed(name)
		if !known {
			return page{}, fmt.Errorf("there is no slot %s", name)
		}
		next := piece{text: text, slot: slot, then: stepFill}
		switch {
		case m[2] >= 0:
			next.then = map[string]step{"if": stepIf, "unless": stepUnless}[html[m[2]:m[3]]]
			open = append(open, condition{len(p.pieces), at})
		case at.place != inText && at.place != inValue:
			return page{}, fmt.Errorf("slot %s stands neither in text nor between double quotes", name)
		}
		p.pieces = append(p.pieces, next)
	}
	at.advance(html[end:])
	if len(open) > 0 || at.place != inText {
		return page{}, fmt.Errorf("it ends with %d open conditions, in the midst of %q", len(open), at.element)
	}
	p.pieces = append(p.pieces, piece{text: html[end:]})
	p.policy = policyFor(html)
	return p, nil
}

func slotNamed(name string) (slot, bool) {
	for s, known := range slotNames {
		if known == name {
			return slot(s), true
		}
	}
	return 0, false
}

// policyFor allows what is on a page and nothing else.
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

// position is a place in HTML as the templates have it: without comments, all values between double quotes.
type position struct {
	place   markup
	element string // the one in whose tag it is, or whose code
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
		case p.place == inText && c == '<', p.place == inCode && strings.HasPrefix(text[i:], "</"+p.element):
			p.place = inTag
			name := text[i+1:]
			p.element = name[:len(name)-len(strings.TrimLeft(name, "/abcdefghijklmnopqrstuvwxyz0123456789!"))]
		case p.place == inTag && c == '"':
			p.place = inValue
		case p.place == inValue && c == '"':
			p.place = inTag
		case p.place == inTag && c == '>':
			if p.element == "script" || p.element == "style" {
				p.place = inCode
			} else {
				*p = position{}
			}
		}
	}
}
