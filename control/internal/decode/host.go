package decode

import (
	"errors"
	"strings"
	"unicode"

	"golang.org/x/net/idna"

	"deeplink/shared/catalog"
)

// international decodes punycode as browsers do: valid code points (RFC 5892), joiners where they are allowed, and no text that changes its
// direction within a label (RFC 5893). idna.Lookup accepts some of what these rules forbid.
var international = idna.New(idna.ValidateLabels(true), idna.CheckHyphens(true), idna.CheckJoiners(true), idna.BidiRule(), idna.StrictDomainName(true))

var errNotInternational = errors.New("must be in punycode (xn--…) that stands for a valid international name")

// CustomHost reads the host of a custom domain with [catalog.CheckHost], and checks its international labels. It accepts names that look
// like other names: every page shows a host in punycode, and only the owner of a name can prove it.
func CustomHost(sent string) (string, error) {
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
			return "", FieldError("host", errNotInternational.Error())
		}
		// Encoding the text must return the label: otherwise one name would have two spellings.
		if back, err := international.ToASCII(text); err != nil || back != label || strings.ContainsFunc(text, notInWords) {
			return "", FieldError("host", errNotInternational.Error())
		}
	}
	return host, nil
}

// notInWords reports whether a character does not belong in words, such as a symbol. RFC 5892 disallows all but letters, marks, digits, and
// a few signs within words of some languages.
func notInWords(r rune) bool {
	return !unicode.In(r, unicode.Letter, unicode.Mark, unicode.Nd) && !strings.ContainsRune("-·͵׳״・\u200c\u200d", r)
}
