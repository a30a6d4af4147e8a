package transfer

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strconv"

	"deeplink/shared/catalog"
)

// The formats of exports and imports of links.
const (
	NDJSON = "ndjson"
	CSV    = "csv"
)

// LinkWriter returns a function that writes pages of links to out in the format. For CSV it writes the header at once.
func LinkWriter(out *bufio.Writer, format string) (func([]catalog.LinkWithDomain) error, error) {
	if format == CSV {
		return writeTable(out)
	}
	return writeLinks(out), nil
}

// writeLinks returns a function that writes links as NDJSON.
func writeLinks(out *bufio.Writer) func([]catalog.LinkWithDomain) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return func(links []catalog.LinkWithDomain) error {
		for i := range links {
			if err := encoder.Encode(&links[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// exportedColumns are the columns of an export. An import reads all of them except the last ones, which clients cannot set.
var exportedColumns = []string{
	"shortCode", "domain", "path", "fallbackUrl", "title", "tags", "channel", "utmSource", "utmMedium", "utmCampaign", "utmTerm", "utmContent",
	"ogTitle", "ogDescription", "ogImageUrl", "expiry", "templateId", "params", "isActive", "externalId", "shortUrl", "id", "createdAt", "updatedAt",
}

// writeTable writes the header, and returns a function that writes links as CSV (RFC 4180).
func writeTable(out *bufio.Writer) (func([]catalog.LinkWithDomain) error, error) {
	table := csv.NewWriter(out)
	if err := table.Write(exportedColumns); err != nil {
		return nil, err
	}
	table.Flush()
	return func(links []catalog.LinkWithDomain) error {
		for i := range links {
			record, err := cells(&links[i])
			if err != nil {
				return err
			}
			if err := table.Write(record); err != nil {
				return err
			}
		}
		table.Flush()
		return table.Error()
	}, table.Error()
}

// cells returns the cells of a link in the order of exportedColumns, after [neutralize]. Unset members are empty.
func cells(l *catalog.LinkWithDomain) ([]string, error) {
	var og catalog.OpenGraph
	if l.OG != nil {
		og = *l.OG
	}
	var tags, expiry string
	if l.Tags != nil {
		list, err := plainJSON(l.Tags)
		if err != nil {
			return nil, err
		}
		tags = string(list)
	}
	if l.Expiry != nil {
		expiry = l.Expiry.Format(catalog.TimeFormat)
	}
	record := []string{
		l.ShortCode, l.Domain.Host, l.Path, orEmpty(l.FallbackURL), orEmpty(l.Title), tags, orEmpty(l.Channel), orEmpty(l.UTMSource), orEmpty(l.UTMMedium),
		orEmpty(l.UTMCampaign), orEmpty(l.UTMTerm), orEmpty(l.UTMContent), orEmpty(og.Title), orEmpty(og.Description), orEmpty(og.ImageURL), expiry,
		orEmpty(l.TemplateID), string(l.Params), strconv.FormatBool(l.IsActive), orEmpty(l.ExternalID), l.URL, l.ID, l.CreatedAt.Format(catalog.TimeFormat),
		l.UpdatedAt.Format(catalog.TimeFormat),
	}
	for i, cell := range record {
		record[i] = neutralize(cell)
	}
	return record, nil
}

// orEmpty returns the string, empty for nil.
func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// plainJSON marshals v without escaping characters that have a meaning in HTML, so that params stay as they were sent.
func plainJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}
