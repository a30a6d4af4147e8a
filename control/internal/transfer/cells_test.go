package transfer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// spreadsheetCells are values of cells, and what an export writes for each of them.
var spreadsheetCells = map[string]string{
	"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(1)": "'@SUM(1)", "\t=1": "'\t=1", "\r=1": "'\r=1", "\n=1": "'\n=1", "\r\n=1": "'\r\n=1", "＝1": "'＝1", "＠a": "'＠a",
	"'=1": "''=1", "''-1": "'''-1", "'\t": "''\t",
	"": "", "a": "a", "'": "'", "''": "''", "'a": "'a", "'tis": "'tis", "a=1": "a=1", " =1": " =1", "''a": "''a", `"=1"`: `"=1"`, "a\r\nb": "a\r\nb", "a\rb": "a\rb", "a\r\r\nb": "a\r\r\nb",
}

func TestCellsThatSpreadsheetsEvaluateAreNeutralized(t *testing.T) {
	t.Parallel()
	for value, expected := range spreadsheetCells {
		got := neutralize(value)
		if got != expected {
			t.Errorf("%q is exported as %q, expected %q", value, got, expected)
		}
		if back := restore(got); back != value {
			t.Errorf("%q is exported as %q and imported as %q", value, got, back)
		}
	}
}

// FuzzCells writes cells as an export does and reads them as an import does.
func FuzzCells(f *testing.F) {
	for value := range spreadsheetCells {
		f.Add(value, "b", false)
		f.Add("a\nb", value, true)
	}
	f.Fuzz(func(t *testing.T, first, second string, crlf bool) {
		var file bytes.Buffer
		table := csv.NewWriter(&file)
		for range 2 {
			if err := table.Write([]string{neutralize(first), "between", neutralize(second)}); err != nil {
				t.Fatal(err)
			}
		}
		table.Flush()
		text := file.String()
		if crlf && !strings.ContainsAny(first+second, "\r\n") {
			text = strings.ReplaceAll(text, "\n", "\r\n") // as a spreadsheet ends its lines
		}
		for _, cell := range strings.Split(text, "\n") {
			if strings.HasPrefix(strings.TrimPrefix(cell, `"`), "=") && !strings.ContainsAny(first+second, "\r\n") {
				t.Errorf("%q holds a formula", text)
			}
		}
		in := csv.NewReader(&lineBreakKeeper{in: bufio.NewReader(strings.NewReader(text))})
		for range 2 {
			record, err := in.Read()
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			for i, value := range []string{first, "between", second} {
				if got := restore(record[i]); got != value {
					t.Errorf("%q became %q in %q", value, got, text)
				}
			}
		}
		if _, err := in.Read(); err != io.EOF {
			t.Errorf("%q: %v after the last record, expected its end", text, err)
		}
	})
}

// Nothing but line breaks in quoted cells is read otherwise than by encoding/csv alone, in files of any kind.
func FuzzLineBreakKeeper(f *testing.F) {
	for _, file := range []string{"a,b\r\nc,\"d\r\ne\"\r\n", "a\"b,\"x\r\nc,d\r\n\"e\r\n\"\r\n", "\"a\"b\r\nc", "\r\n\r\na", "\"a\"\"\r\n\"\r\n", "a\r", "\"\r\r\n\"", "\"unclosed\r\n"} {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file string) {
		plain := csv.NewReader(strings.NewReader(file))
		kept := csv.NewReader(&lineBreakKeeper{in: bufio.NewReader(strings.NewReader(file))})
		plain.FieldsPerRecord, kept.FieldsPerRecord = -1, -1
		for {
			expected, plainErr := plain.Read()
			got, err := kept.Read()
			if (plainErr == nil) != (err == nil) {
				t.Fatalf("%q: %v, expected %v", file, err, plainErr)
			}
			if bad, ok := err.(*csv.ParseError); err == io.EOF || ok && bad.Err == csv.ErrQuote {
				return
			}
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], "\r\n", "\n")
			}
			if diff := cmp.Diff(expected, got); diff != "" {
				t.Fatalf("%q (-expected +got):\n%s", file, diff)
			}
		}
	})
}

func TestCellsComeBackFromCSVAsTheyWere(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	from, to := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
	var links int
	for value := range spreadsheetCells {
		link := catalog.Link{Path: "/a", IsActive: true, OG: &catalog.OpenGraph{Description: &value}}
		if strings.TrimSpace(value) == "" {
			link.OG = nil // blank text is stored as null
		}
		if !strings.ContainsAny(value, "\t\r\n") && value != "" {
			link.Path, link.Title, link.TemplateID, link.UTMSource, link.Tags = strings.TrimSpace(value), &value, &value, &value, []string{strings.TrimSpace(value)}
		}
		if _, _, err := w.Store.CreateLink(context.Background(), testenv.Actor, from.ID, store.Unconditional, link); err != nil {
			t.Fatal(err)
		}
		links++
	}
	file := w.export(from, CSV)
	record, err := csv.NewReader(strings.NewReader(file)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, cells := range record {
		for _, cell := range cells {
			if cell != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(cell)[0]) {
				t.Errorf("a spreadsheet evaluates the cell %q", cell)
			}
		}
	}
	for range 2 {
		if got, refused := w.imports(to, CSV, file); got.Created+got.Unchanged != links {
			t.Fatalf("%+v, %v; expected %d links", got, refused, links)
		}
		if diff := cmp.Diff(w.StoredLinks(from), w.StoredLinks(to)); diff != "" {
			t.Errorf("(-rows exported +rows imported):\n%s", diff)
		}
		if diff := cmp.Diff(testenv.ComparableLinks(t, w.export(from, NDJSON)), testenv.ComparableLinks(t, w.export(to, NDJSON))); diff != "" {
			t.Errorf("(-exported +imported):\n%s", diff)
		}
	}
}

// The links are as an earlier release created them from the file, which took cells to the letter and shortened line breaks.
func TestImportRecognizesCellsAsAnEarlierReleaseReadThem(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Organization(catalog.Scale)
	link, err := catalog.ReadLink([]byte(`{"path":"/a","fallbackUrl":"https://acme.example/a","title":"'=1","og":{"description":"one\ntwo"}}`))
	if err != nil {
		t.Fatal(err)
	}
	link.ShortCode = deriveCode(o.ID, "", link)
	named := link
	named.ShortCode = "named"
	for _, l := range []catalog.Link{link, named} {
		if _, _, err := w.Store.CreateLink(context.Background(), testenv.Actor, o.ID, store.Unconditional, l); err != nil {
			t.Fatal(err)
		}
	}
	const file = "slug,url,title,description\r\n" + ",https://acme.example/a,'=1,\"one\r\ntwo\"\r\n" + "named,https://acme.example/a,'=1,\"one\r\ntwo\"\r\n" + ",https://acme.example/b,'=1,\r\n"
	for _, expected := range []Result{{Rows: 3, Created: 1, Unchanged: 2}, {Rows: 3, Unchanged: 3}} {
		got, refused := w.imports(o, CSV, file)
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("(-expected +got):\n%s\n%v", diff, refused)
		}
	}
	var titles []string
	if err := w.Pool.QueryRow(context.Background(), `select array_agg(title order by path, short_code) from links where organization_id = $1`, o.ID).Scan(&titles); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"'=1", "'=1", "=1"}, titles); diff != "" {
		t.Errorf("titles (-expected +got):\n%s", diff)
	}
}
