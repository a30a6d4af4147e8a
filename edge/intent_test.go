package main

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// intent is an intent:// URL as Android parses it.
type intent struct {
	data   string
	extras map[string]string
}

// parseIntent does what Intent.parseUri of android.content does: everything after the last # is extras, one of which is the scheme.
func parseIntent(uri string) (intent, error) {
	end := strings.LastIndexByte(uri, '#')
	data, isIntent := strings.CutPrefix(uri[:max(end, 0)], "intent:")
	extras, isNew := strings.CutPrefix(uri[max(end, 0):], "#Intent;")
	if !isIntent || !isNew {
		return intent{}, fmt.Errorf("no intent: %s", uri)
	}
	parsed := intent{extras: make(map[string]string)}
	for extras != "end" {
		extra, rest, found := strings.Cut(extras, ";")
		name, value, assigned := strings.Cut(extra, "=")
		decoded, err := url.PathUnescape(value)
		if _, twice := parsed.extras[name]; !found || !assigned || twice || err != nil {
			return intent{}, fmt.Errorf("extra %q before %q in %s: %v", extra, rest, uri, err)
		}
		parsed.extras[name], extras = decoded, rest
	}
	parsed.data = parsed.extras["scheme"] + ":" + data
	return parsed, nil
}

// attribute returns the value of an attribute of the element with this id.
func attribute(t testing.TB, page, id, name string) (value string, found bool) {
	t.Helper()
	tags := regexp.MustCompile(`<[a-z]+ id="`+id+`"[^>]*>`).FindAllString(page, -1)
	if len(tags) > 1 {
		t.Fatalf("%d elements with the id %s", len(tags), id)
	}
	if len(tags) == 0 {
		return "", false
	}
	m := regexp.MustCompile(` ` + name + `="([^"]*)"`).FindStringSubmatch(tags[0])
	if m == nil {
		return "", false
	}
	return html.UnescapeString(m[1]), true
}
