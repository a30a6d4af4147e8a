package main

import (
	"errors"
	"strings"
	"unicode"

	"golang.org/x/net/idna"

	"deeplink/shared/catalog"
)

// international reads the punycode of a host as browsers do: valid code points (RFC 5892), joiners where they may be, and text that
// cannot change its direction inside (RFC 5893). Go's own profile for look-ups lets some of that pass.
var international = idna.New(idna.ValidateLabels(true), idna.CheckHyphens(true), idna.CheckJoiners(true), idna.BidiRule(), idna.StrictDomainName(true))

var (
	errNotInternational = errors.New("must be in punycode (xn--…) that stands for a valid international name")
	errMixedScripts     = errors.New("must not mix scripts in a label: it would look like another name")
)

// readCustomHost reads the host of a custom domain, as [catalog.CheckHost] and with what only an international name can have wrong with
// it. A name that looks like another in one script alone cannot be told apart; it is shown as punycode everywhere.
func readCustomHost(sent string) (string, error) {
	host, err := catalog.CheckHost(sent)
	if err != nil {
		return "", err
	}
	for label := range strings.SplitSeq(host, ".") {
		if !strings.HasPrefix(label, "xn--") {
			continue
		}
		text, err := international.ToUnicode(label)
		if err != nil {
			return "", fault("host", errNotInternational.Error())
		}
		// What a label is written as must lead back to it, or two names would be one.
		if back, err := international.ToASCII(text); err != nil || back != label || strings.ContainsFunc(text, unwritten) {
			return "", fault("host", errNotInternational.Error())
		}
		if mixesScripts(text) {
			return "", fault("host", errMixedScripts.Error())
		}
	}
	return host, nil
}

// unwritten reports whether a character is for more than writing words, as symbols are, which RFC 5892 disallows: letters, marks, digits
// and the few signs that some languages have within words are left.
func unwritten(r rune) bool {
	return !unicode.In(r, unicode.Letter, unicode.Mark, unicode.Nd) && !strings.ContainsRune("-·͵׳״・\u200c\u200d", r)
}

// together are the scripts that belong to one way of writing (Unicode Technical Standard 39, 5.2: highly restrictive).
var together = [][]string{
	{"Latin", "Han", "Hiragana", "Katakana"},
	{"Latin", "Han", "Bopomofo"},
	{"Latin", "Han", "Hangul"},
}

// mixesScripts reports whether a label has letters of scripts that nobody writes together. Digits and hyphens belong to all.
func mixesScripts(label string) bool {
	used := make(map[string]bool)
	for _, r := range label {
		if script := scriptOf(r); script != "" {
			used[script] = true
		}
	}
	if len(used) <= 1 {
		return false
	}
	for _, scripts := range together {
		others := len(used)
		for _, script := range scripts {
			if used[script] {
				others--
			}
		}
		if others == 0 {
			return false
		}
	}
	return true
}

// scriptOf returns the name of the script that a character belongs to, "" when it belongs to all or takes that of the one before it.
func scriptOf(r rune) string {
	if unicode.In(r, unicode.Common, unicode.Inherited) {
		return ""
	}
	for name, table := range unicode.Scripts {
		if unicode.Is(table, r) {
			return name
		}
	}
	return ""
}
