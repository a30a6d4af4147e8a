package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

var (
	errNotString  = errors.New("must be a string")
	errNotBool    = errors.New("must be true or false")
	errEmpty      = errors.New("must not be empty")
	errControl    = errors.New("must not contain control characters")
	errUTF8       = errors.New("must be valid UTF-8")
	errSpace      = errors.New("must not begin or end with white space")
	errSegment    = errors.New("must not be . or .. and must not contain / or a backslash")
	errUUID       = errors.New("must be a UUID")
	errChannel    = errors.New("must be a known channel")
	errReserved   = errors.New("is reserved")
	errNotTime    = errors.New("must be an RFC 3339 time such as 2030-01-31T12:00:00Z")
	errNotStrings = errors.New("must be an array of strings")
	errShortCode  = fmt.Errorf("must be 1 to %d letters, digits, - or _, and begin with a letter or digit", MaxShortCode)
)

func atMost(bound int, unit string) error { return fmt.Errorf("must be at most %d %s", bound, unit) }

// readString returns valid UTF-8: encoding/json puts U+FFFD for what is none. Callers refuse that with strictjson before.
func readString(value json.RawMessage) (string, error) {
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return "", errNotString
	}
	return s, nil
}

// bounded reads a string of at most max characters without control characters, except the allowed ones.
func bounded(value json.RawMessage, max int, allowed string) (string, error) {
	s, err := readString(value)
	switch {
	case err != nil:
		return "", err
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune(allowed, r) }):
		return "", errControl
	case utf8.RuneCountInString(s) > max:
		return "", atMost(max, "characters")
	}
	return s, nil
}

// trimmed reads a string that white space at its ends does not belong to: 1 to max characters without it.
func trimmed(value json.RawMessage, max int) (string, error) {
	s, err := readString(value)
	if err != nil {
		return "", err
	}
	// Before it is trimmed: a line break at the end is refused, not dropped.
	if strings.ContainsFunc(s, unicode.IsControl) {
		return "", errControl
	}
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return "", errEmpty
	case utf8.RuneCountInString(s) > max:
		return "", atMost(max, "characters")
	}
	return s, nil
}

// text reads free text on one line. Blank text is none.
func text(max int) func(json.RawMessage) (*string, error) {
	return freeText(max, "")
}

// paragraphs reads free text that may have several lines.
func paragraphs(max int) func(json.RawMessage) (*string, error) {
	return freeText(max, "\r\n\t")
}

func freeText(max int, allowed string) func(json.RawMessage) (*string, error) {
	return func(value json.RawMessage) (*string, error) {
		s, err := bounded(value, max, allowed)
		if err != nil || strings.TrimSpace(s) == "" {
			return nil, err
		}
		return &s, nil
	}
}

func readBool(value json.RawMessage) (bool, error) {
	switch string(value) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errNotBool
}

func readUUID(value json.RawMessage) (string, error) {
	s, err := readString(value)
	if err != nil {
		return "", err
	}
	id, ok := ValidUUID(s)
	if !ok {
		return "", errUUID
	}
	return id, nil
}

var shortCode = regexp.MustCompile(ShortCodePattern)

// reservedCodes have a meaning at the place of a short code on one of the hosts.
var reservedCodes = []string{"data", "match", "healthz", "readyz", "assets", "robots", "favicon"}

func readShortCode(value json.RawMessage) (string, error) {
	s, err := readString(value)
	switch {
	case err != nil:
		return "", err
	case !shortCode.MatchString(s):
		return "", errShortCode
	case slices.Contains(reservedCodes, strings.ToLower(s)):
		return "", errReserved
	}
	return s, nil
}

func readChannel(value json.RawMessage) (*string, error) {
	s, err := readString(value)
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(Channels, s):
		return nil, errChannel
	}
	return &s, nil
}

func readTemplateID(value json.RawMessage) (*string, error) {
	s, err := bounded(value, MaxTemplateID, "")
	switch {
	case err != nil:
		return nil, err
	case strings.TrimSpace(s) == "":
		return nil, errEmpty
	}
	return &s, nil
}

// readExternalID reads a value that a path can contain: control compares values byte for byte.
func readExternalID(value json.RawMessage) (*string, error) {
	s, err := readString(value)
	if err != nil {
		return nil, err
	}
	if err := CheckExternalID(s); err != nil {
		return nil, err
	}
	return &s, nil
}

// CheckExternalID returns nil for a value that can be the external id of a link, otherwise what is wrong with it, as the rest of a sentence
// that begins with the field's name. Every valid value can be a segment of a path.
func CheckExternalID(s string) error {
	switch {
	case s == "":
		return errEmpty
	case !utf8.ValidString(s):
		return errUTF8
	case strings.ContainsFunc(s, unicode.IsControl):
		return errControl
	case strings.TrimSpace(s) != s:
		return errSpace
	case strings.ContainsAny(s, `/\`) || s == "." || s == "..":
		return errSegment
	case utf8.RuneCountInString(s) > MaxExternalID:
		return atMost(MaxExternalID, "characters")
	}
	return nil
}

// readTags trims tags and drops duplicates before it counts them.
func readTags(value json.RawMessage) ([]string, error) {
	var values []json.RawMessage
	if value[0] != '[' || json.Unmarshal(value, &values) != nil {
		return nil, errNotStrings
	}
	// Not nil: an empty list was sent, and is read back as one.
	tags := []string{}
	for i, v := range values {
		tag, err := trimmed(v, MaxTag)
		if err != nil {
			return nil, fmt.Errorf("entry %d %w", i+1, err)
		}
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
		if len(tags) > MaxTags {
			return nil, atMost(MaxTags, "tags")
		}
	}
	return tags, nil
}

var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// readTime reads what RFC 3339 allows and Postgres keeps: years 1 to 9999, cut to milliseconds.
func readTime(value json.RawMessage) (*Time, error) {
	s, err := readString(value)
	if err != nil {
		return nil, err
	}
	// time.Parse alone lets pass hours of one digit, commas for points and offsets of a whole day.
	s = strings.ToUpper(s) // the letters may be in either case
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !rfc3339.MatchString(s) {
		return nil, errNotTime
	}
	t = t.UTC().Truncate(time.Millisecond)
	if t.Year() < 1 || t.Year() > 9999 {
		return nil, errors.New("must be in the years 1 to 9999")
	}
	return &Time{t}, nil
}
