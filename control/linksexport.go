package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"strconv"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/settings"
)

// The formats of exports and imports of links.
const (
	formatNDJSON = "ndjson"
	formatCSV    = "csv"
)

type linksExportCommand struct {
	LinkBaseURL settings.LinkBase `required:"" env:"LINK_BASE_URL" placeholder:"$$LINK_BASE_URL" help:"What short URLs on the shared host begin with, such as https://go.example.com."`
	Org         string            `required:"" help:"Key of the organization."`
	Format      string            `default:"ndjson" enum:"ndjson,csv" help:"ndjson: each link on a line, as the API answers it. csv: for spreadsheets; tags and params are JSON in their cells."`
}

// Run implements control links export: all links of one moment, the oldest first, as they are read.
func (c *linksExportCommand) Run(t *task) error {
	pool, err := openPool(t.database, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	s := store.New(pool, string(c.LinkBaseURL))
	ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
	defer cancel()
	o, err := organization(ctx, s, c.Org)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(t.out, 1<<16)
	page := writeLinks(out)
	if c.Format == formatCSV {
		if page, err = writeTable(out); err != nil {
			return err
		}
	}
	if err := s.ExportLinks(t.ctx, o.ID, page); err != nil {
		return err
	}
	return out.Flush()
}

// writeLinks returns what writes links as NDJSON.
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

// exportedColumns are the columns of an export. An import knows all of them, but for those at the end, which nobody sets.
var exportedColumns = []string{
	"shortCode", "domain", "path", "fallbackUrl", "title", "tags", "channel", "utmSource", "utmMedium", "utmCampaign", "utmTerm", "utmContent",
	"ogTitle", "ogDescription", "ogImageUrl", "expiry", "templateId", "params", "isActive", "shortUrl", "id", "createdAt", "updatedAt",
}

// writeTable writes the header and returns what writes links as CSV (RFC 4180).
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

// cells returns the link in the order of exportedColumns. What is unset is empty.
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
	return []string{
		l.ShortCode, l.Domain.Host, l.Path, orEmpty(l.FallbackURL), orEmpty(l.Title), tags, orEmpty(l.Channel), orEmpty(l.UTMSource), orEmpty(l.UTMMedium),
		orEmpty(l.UTMCampaign), orEmpty(l.UTMTerm), orEmpty(l.UTMContent), orEmpty(og.Title), orEmpty(og.Description), orEmpty(og.ImageURL), expiry,
		orEmpty(l.TemplateID), string(l.Params), strconv.FormatBool(l.IsActive), l.URL, l.ID, l.CreatedAt.Format(catalog.TimeFormat),
		l.UpdatedAt.Format(catalog.TimeFormat),
	}, nil
}

// orEmpty returns the string, empty when there is none.
func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// plainJSON marshals v and leaves characters that HTML gives a meaning as they are: params are kept to the letter.
func plainJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}
