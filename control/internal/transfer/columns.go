package transfer

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"deeplink/shared/catalog"
)

// column is a column of a CSV file, and how its cells become a member of a link.
type column struct {
	name string
	read func(cell string) (value any, ok bool)
}

// field is a member of a link, and the columns that it may come from. The first column with a value counts.
type field struct {
	member  string
	columns []column
}

// shortURLColumns contain short URLs, which also name the domain.
var shortURLColumns = []string{"custom link", "custom bitlink", "custom bitlinks", "short URL", "short link", "link", "bitlink"}

// fields maps the columns of CSV files: exports of control (the first name of each), Bitly, Dub and Branch, as far as their columns are documented.
// Names are compared without case, spaces, _, - and dots.
var fields = []field{
	{"shortCode", append(columns(asWord, "shortCode", "back half", "key", "slug", "alias"), columns(codeOfURL, shortURLColumns...)...)},
	{"path", columns(asText, "path", "$deeplink_path", "$ios_deeplink_path", "$android_deeplink_path")},
	{"fallbackUrl", columns(asWord, "fallbackUrl", "long URL", "destination URL", "destination", "original URL", "url",
		"$fallback_url", "$desktop_url", "$canonical_url", "$ios_url", "$android_url")},
	{"title", columns(asText, "title", "link title", "$marketing_title")},
	{"tags", columns(asList, "tags", "~tags")},
	{"externalId", columns(asText, "externalId")},
	{"channel", append(columns(asWord, "channel"), columns(asChannel, "~channel")...)},
	{"utmSource", columns(asText, "utmSource", "~channel")},
	{"utmMedium", columns(asText, "utmMedium", "~feature")},
	{"utmCampaign", columns(asText, "utmCampaign", "~campaign")},
	{"utmTerm", columns(asText, "utmTerm", "~keyword")},
	{"utmContent", columns(asText, "utmContent")},
	{"og.title", columns(asText, "ogTitle", "$og_title")},
	{"og.description", columns(asText, "ogDescription", "description", "$og_description")},
	{"og.imageUrl", columns(asText, "ogImageUrl", "image", "$og_image_url")},
	{"expiry", columns(asWord, "expiry", "expires at", "expiration date")},
	{"templateId", columns(asText, "templateId")},
	{"params", columns(asJSON, "params")},
	{"isActive", columns(asJSON, "isActive")},
}

func columns(read func(string) (any, bool), names ...string) []column {
	all := make([]column, len(names))
	for i, name := range names {
		all[i] = column{name, read}
	}
	return all
}

func asText(cell string) (any, bool) { return cell, true }

// asWord removes white space around the value.
func asWord(cell string) (any, bool) { return strings.TrimSpace(cell), true }

// asList reads a JSON array, as in exports of control, or names separated by commas.
func asList(cell string) (any, bool) {
	if strings.HasPrefix(cell, "[") && json.Valid([]byte(cell)) {
		return json.RawMessage(cell), true
	}
	names := strings.Split(cell, ",")
	return slices.DeleteFunc(names, func(name string) bool { return strings.TrimSpace(name) == "" }), true
}

// asJSON keeps a cell that is not JSON as text, so that the validation of the row rejects it.
func asJSON(cell string) (any, bool) {
	if value := []byte(strings.ToLower(cell)); string(value) == "true" || string(value) == "false" {
		return json.RawMessage(value), true
	}
	if json.Valid([]byte(cell)) {
		return json.RawMessage(cell), true
	}
	return cell, true
}

// asChannel reads the channel of another service. An unknown channel counts as absent.
func asChannel(cell string) (any, bool) {
	name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(cell)), " ", "_")
	return name, slices.Contains(catalog.Channels, name)
}

// codeOfURL returns the code of a short URL, with or without a scheme: the text after the last slash. Of several URLs it uses the first.
func codeOfURL(cell string) (any, bool) {
	u, ok := shortURL(cell)
	if !ok {
		return nil, false
	}
	return u.Path[strings.LastIndexByte(u.Path, '/')+1:], true
}

func shortURL(cell string) (*url.URL, bool) {
	first, _, _ := strings.Cut(strings.Trim(cell, `[]" `), ",")
	first = strings.Trim(first, `" `)
	if !strings.Contains(first, "://") {
		first = "https://" + first
	}
	u, err := url.Parse(first)
	return u, err == nil && u.Host != "" && strings.Trim(u.Path, "/") != ""
}

// fold removes what does not matter in names of columns.
var fold = strings.NewReplacer(" ", "", "_", "", "-", "", ".", "")

func folded(name string) string { return fold.Replace(strings.ToLower(strings.TrimSpace(name))) }

// table is the header of a CSV file.
type table struct {
	index   map[string]int // folded names
	ignored []string       // columns that the import does not use
}

const (
	domainColumn = "domain"
	urlColumn    = "url"
)

// readHeader finds the known columns. Of two columns with the same name it uses the first.
func readHeader(names []string) (table, error) {
	t := table{index: make(map[string]int)}
	known := map[string]bool{domainColumn: true}
	for _, field := range fields {
		for _, column := range field.columns {
			known[folded(column.name)] = true
		}
	}
	branch := slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "$") || strings.HasPrefix(name, "~") })
	for i, name := range names {
		key := folded(name)
		if branch && key == urlColumn {
			// In files of Branch url is the short link, in those of Dub the long one.
			key = "link"
		}
		if _, twice := t.index[key]; twice || !known[key] {
			t.ignored = append(t.ignored, name)
			continue
		}
		t.index[key] = i
	}
	for _, member := range []string{"path", "fallbackUrl"} {
		if t.has(member) {
			return t, nil
		}
	}
	return t, errors.New("the first line names no column with a destination; see control links import --help")
}

func (t table) has(member string) bool {
	i := slices.IndexFunc(fields, func(f field) bool { return f.member == member })
	return slices.ContainsFunc(fields[i].columns, func(c column) bool { _, there := t.index[folded(c.name)]; return there })
}

// cell returns the cell of a column, empty when the column is missing or the cell is blank.
func (t table) cell(record []string, column string) string {
	if i, there := t.index[folded(column)]; there && i < len(record) && strings.TrimSpace(record[i]) != "" {
		return record[i]
	}
	return ""
}

// link returns a record as the body of a create request, and the host of its domain. A record without a path gets the path of its destination,
// because a link must have one.
func (t table) link(record []string) (body []byte, host string, err error) {
	if slices.ContainsFunc(record, func(cell string) bool { return !utf8.ValidString(cell) }) {
		return nil, "", errors.New("the row is not valid UTF-8")
	}
	members, og := make(map[string]any), make(map[string]any)
	for _, field := range fields {
		value, found := t.value(record, field)
		if !found {
			continue
		}
		if member, inside := strings.CutPrefix(field.member, "og."); inside {
			og[member] = value
		} else {
			members[field.member] = value
		}
	}
	if len(og) > 0 {
		members["og"] = og
	}
	if destination, ok := members["fallbackUrl"].(string); ok && members["path"] == nil {
		members["path"] = pathOf(destination)
	}
	body, err = plainJSON(members)
	return body, t.host(record), err
}

func (t table) value(record []string, field field) (any, bool) {
	for _, column := range field.columns {
		if cell := t.cell(record, column.name); cell != "" {
			if value, ok := column.read(cell); ok {
				return value, true
			}
		}
	}
	return nil, false
}

// pathOf returns path and query of a URL.
func pathOf(destination string) string {
	u, err := url.Parse(destination)
	if err != nil || u.Opaque != "" {
		return "/"
	}
	path := "/" + strings.TrimLeft(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	return path
}

// host returns the host in the domain column, otherwise that of the short URL.
func (t table) host(record []string) string {
	if host := t.cell(record, domainColumn); host != "" {
		return strings.TrimSpace(host)
	}
	for _, column := range shortURLColumns {
		if u, ok := shortURL(t.cell(record, column)); ok {
			return u.Host
		}
	}
	return ""
}

// ColumnsHelp returns a line for each member of a link with the columns that it may come from.
func ColumnsHelp() []string {
	var lines []string
	for _, field := range fields {
		names := make([]string, len(field.columns))
		for i, column := range field.columns {
			names[i] = column.name
		}
		lines = append(lines, field.member+": "+strings.Join(names, ", "))
	}
	return lines
}
