package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"deeplink/shared/catalog"
	"deeplink/shared/strictjson"
)

// maxImportLine bounds a line of NDJSON, in bytes: what the API takes, and what it adds in its answers.
const maxImportLine = maxBody + 4<<10

// importRow is a row of a file to import.
type importRow struct {
	line int
	// body is what the API would be sent, without a domain; host names the domain, empty for the default one.
	body []byte
	host string
	// err is why there is no body.
	err error
}

// importRows reads a file row by row. The error is io.EOF at its end, and another when no more can be read.
type importRows interface {
	next() (importRow, error)
	// ignored returns the columns of which nothing is taken.
	ignored() []string
}

// openRows returns the rows of in.
func openRows(in io.Reader, format string) (importRows, error) {
	buffered := bufio.NewReaderSize(in, maxImportLine)
	// Spreadsheets begin their files with a mark that is no text.
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3)
	}
	if format == formatCSV {
		return openTable(buffered)
	}
	return &lineRows{in: buffered}, nil
}

// lineRows are NDJSON.
type lineRows struct {
	in   *bufio.Reader
	line int
}

func (r *lineRows) ignored() []string { return nil }

func (r *lineRows) next() (importRow, error) {
	for {
		text, err := r.in.ReadSlice('\n')
		r.line++
		row := importRow{line: r.line}
		if errors.Is(err, bufio.ErrBufferFull) {
			row.err = fmt.Errorf("the line must be at most %d bytes", maxImportLine)
			return row, r.skip()
		}
		text = bytes.TrimSpace(text)
		if len(text) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			row.body, row.host, row.err = readExported(text)
			return row, nil
		}
		if err != nil {
			return importRow{}, err
		}
	}
}

// skip reads to the end of the line.
func (r *lineRows) skip() error {
	for {
		if _, err := r.in.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// readExported takes the domain out of a link as the API answers it: its id means something in its own organization alone.
func readExported(text []byte) (body []byte, host string, err error) {
	if err := strictjson.Check(text, maxDepth); err != nil {
		return nil, "", err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return nil, "", errors.New("must be a JSON object")
	}
	var domain struct {
		Host      string `json:"host"`
		IsDefault bool   `json:"isDefault"`
	}
	if value, sent := members["domain"]; sent {
		if err := json.Unmarshal(value, &domain); err != nil {
			return nil, "", errors.New("domain must be an object with a host")
		}
		delete(members, "domainId")
	}
	if domain.IsDefault {
		domain.Host = ""
	}
	body, err = plainJSON(members)
	return body, domain.Host, err
}

// tableRows are CSV (RFC 4180).
type tableRows struct {
	in    *csv.Reader
	table importTable
}

func openTable(in io.Reader) (*tableRows, error) {
	r := &tableRows{in: csv.NewReader(in)}
	// A spreadsheet may leave out empty cells at the end.
	r.in.FieldsPerRecord = -1
	r.in.ReuseRecord = true
	header, err := r.in.Read()
	if err != nil {
		return nil, fmt.Errorf("%w: read the names of the columns: %w", errArgument, err)
	}
	r.table, err = readHeader(header)
	return r, err
}

func (r *tableRows) ignored() []string { return r.table.ignored }

func (r *tableRows) next() (importRow, error) {
	record, err := r.in.Read()
	if bad := (*csv.ParseError)(nil); errors.As(err, &bad) {
		// What follows a quote that is not closed cannot be told apart any more.
		if errors.Is(err, csv.ErrQuote) {
			return importRow{}, err
		}
		return importRow{line: bad.StartLine, err: bad.Err}, nil
	}
	if err != nil {
		return importRow{}, err
	}
	row := importRow{}
	row.line, _ = r.in.FieldPos(0)
	row.body, row.host, row.err = r.table.link(record)
	return row, nil
}

// judge reads the row as the API would. Without a short code the link gets one that follows from what the row says, so that the same row
// never becomes a second link.
func (r importRow) judge(organizationID string) (catalog.Link, error) {
	if r.err != nil {
		return catalog.Link{}, r.err
	}
	if err := strictjson.Check(r.body, maxDepth); err != nil {
		return catalog.Link{}, err
	}
	link, err := catalog.ReadLink(r.body)
	if err == nil && link.ShortCode == "" {
		link.ShortCode = derivedCode(organizationID, r.host, link)
	}
	return link, err
}

const (
	derivedAlphabet = "23456789abcdefghjkmnpqrstuvwxyz"
	derivedLength   = 12 // of 31 each: a collision among a million links has a chance of one in a million
)

func derivedCode(organizationID, host string, l catalog.Link) string {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // it was read from JSON
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", organizationID, strings.ToLower(host), text))
	code := make([]byte, derivedLength)
	for i := range code {
		code[i] = derivedAlphabet[int(sum[i])%len(derivedAlphabet)]
	}
	return string(code)
}
