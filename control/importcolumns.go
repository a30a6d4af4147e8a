package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"deeplink/shared/catalog"
)

// importColumn is a column of a CSV file and how its cells become a member of a link.
type importColumn struct {
	name string
	read func(cell string) (value any, ok bool)
}

// importField is a member of a link and the columns that it may come from, the first filled one first.
type importField struct {
	member  string
	columns []importColumn
}

// shortURLColumns name the domain too.
var shortURLColumns = []string{"custom link", "custom bitlink", "custom bitlinks", "short URL", "short link", "link", "bitlink"}

// importFields are what an import makes of CSV files: of our own (the first name of each), and of exports of Bitly, Dub and Branch as
// far as their makers or those who read them say what is in them. Names are compared without regard to case, blanks, _, - and dots.
var importFields = []importField{
	{"shortCode", append(columns(asWord, "shortCode", "back half", "key", "slug", "alias"), columns(codeOfURL, shortURLColumns...)...)},
	{"path", columns(asText, "path", "$deeplink_path", "$ios_deeplink_path", "$android_deeplink_path")},
	{"fallbackUrl", columns(asWord, "fallbackUrl", "long URL", "destination URL", "destination", "original URL", "url",
		"$fallback_url", "$desktop_url", "$canonical_url", "$ios_url", "$android_url")},
	{"title", columns(asText, "title", "link title", "$marketing_title")},
	{"tags", columns(asList, "tags", "~tags")},
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

func columns(read func(string) (any, bool), names ...string) []importColumn {
	all := make([]importColumn, len(names))
	for i, name := range names {
		all[i] = importColumn{name, read}
	}
	return all
}

func asText(cell string) (any, bool) { return cell, true }

// asWord reads what has no blanks around it.
func asWord(cell string) (any, bool) { return strings.TrimSpace(cell), true }

// asList reads JSON, as our own exports have it, or names with commas between.
func asList(cell string) (any, bool) {
	if strings.HasPrefix(cell, "[") && json.Valid([]byte(cell)) {
		return json.RawMessage(cell), true
	}
	names := strings.Split(cell, ",")
	return slices.DeleteFunc(names, func(name string) bool { return strings.TrimSpace(name) == "" }), true
}

// asJSON keeps a cell that is no JSON as text, which is then refused for what it is.
func asJSON(cell string) (any, bool) {
	if value := []byte(strings.ToLower(cell)); string(value) == "true" || string(value) == "false" {
		return json.RawMessage(value), true
	}
	if json.Valid([]byte(cell)) {
		return json.RawMessage(cell), true
	}
	return cell, true
}

// asChannel reads the channel of another service: one that is not known here is none.
func asChannel(cell string) (any, bool) {
	name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(cell)), " ", "_")
	return name, slices.Contains(catalog.Channels, name)
}

// codeOfURL reads the code of a short URL, with or without a scheme: what follows the last slash. Of several it takes the first.
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

// fold makes the names of columns comparable.
var fold = strings.NewReplacer(" ", "", "_", "", "-", "", ".", "")

func folded(name string) string { return fold.Replace(strings.ToLower(strings.TrimSpace(name))) }

// importTable is the header of a CSV file.
type importTable struct {
	place   map[string]int // folded names
	ignored []string       // columns of which nothing is taken
}

const (
	domainColumn = "domain"
	urlColumn    = "url"
)

// readHeader finds the columns that are known. One that is there twice counts once, the first.
func readHeader(names []string) (importTable, error) {
	t := importTable{place: make(map[string]int)}
	known := map[string]bool{domainColumn: true}
	for _, field := range importFields {
		for _, column := range field.columns {
			known[folded(column.name)] = true
		}
	}
	branch := slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "$") || strings.HasPrefix(name, "~") })
	for i, name := range names {
		key := folded(name)
		if branch && key == urlColumn {
			// Branch calls the short link so, Dub the long one.
			key = "link"
		}
		if _, twice := t.place[key]; twice || !known[key] {
			t.ignored = append(t.ignored, name)
			continue
		}
		t.place[key] = i
	}
	for _, member := range []string{"path", "fallbackUrl"} {
		if t.has(member) {
			return t, nil
		}
	}
	return t, fmt.Errorf("%w: the first line names no column with a destination; see control links import --help", errArgument)
}

func (t importTable) has(member string) bool {
	i := slices.IndexFunc(importFields, func(f importField) bool { return f.member == member })
	return slices.ContainsFunc(importFields[i].columns, func(c importColumn) bool { _, there := t.place[folded(c.name)]; return there })
}

// cell returns the cell of a column, empty when there is none or it is blank.
func (t importTable) cell(record []string, column string) string {
	if i, there := t.place[folded(column)]; there && i < len(record) && strings.TrimSpace(record[i]) != "" {
		return record[i]
	}
	return ""
}

// link returns a record as the body of a create, and the host of its domain. A link without a path of its own leads to the path of its
// URL: it must have one.
func (t importTable) link(record []string) (body []byte, host string, err error) {
	if slices.ContainsFunc(record, func(cell string) bool { return !utf8.ValidString(cell) }) {
		return nil, "", errors.New("the row is not valid UTF-8")
	}
	members, og := make(map[string]any), make(map[string]any)
	for _, field := range importFields {
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

func (t importTable) value(record []string, field importField) (any, bool) {
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

// host returns the host of the domain column, or else of the short URL.
func (t importTable) host(record []string) string {
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
