package transfer

import (
	"errors"
	"io"
	"strings"
	"testing"

	"deeplink/shared/catalog"
)

// FuzzImport reads files of any kind. Each row either is refused for a reason or is a link that the API itself would have made, and the
// same row always becomes the same link.
func FuzzImport(f *testing.F) {
	for _, file := range []string{
		"path,shortCode\n/a,b\n",
		"\ufeffdomain;path\n",
		"Short link,long URL,tags,og_title\nhttps://a.example/x,https://b.example/y?z#f,\"a,b\",\"x\ny\"\n",
		"$deeplink_path,~channel,~tags,$og_image_url,url\n/a,Email,\"[\"\"a\"\"]\",javascript:x,https://x.example/c\n",
		"path,params,isActive,expiry\n/a,\"{\"\"a\"\":1}\",TRUE,2030-01-01T00:00:00Z\n\"unclosed",
		"url\nhttps:opaque\n//evil.example\n\xff\n",
	} {
		f.Add(file, true)
	}
	f.Add(`{"path":"/a","domain":{"host":"a.example","isDefault":true},"domainId":"x"}`+"\n\n[]\nnull\n{", false)
	f.Fuzz(func(t *testing.T, file string, isCSV bool) {
		format := "ndjson"
		if isCSV {
			format = CSV
		}
		rows, err := OpenRows(strings.NewReader(file), format)
		if err != nil {
			return
		}
		for range strings.Count(file, "\n") + 2 {
			row, err := rows.next()
			if err != nil {
				if !isCSV && !errors.Is(err, io.EOF) {
					t.Errorf("%q: %v", file, err)
				}
				return
			}
			link, err := row.validate("00000000-0000-7000-8000-000000000000")
			if err != nil {
				if err.Error() == "" {
					t.Errorf("%q, line %d: refused without a reason", file, row.line)
				}
				continue
			}
			if link.ShortCode == "" || link.Path == "" || strings.HasPrefix(link.Path, "//") {
				t.Errorf("%q, line %d: %+v", file, row.line, link)
			}
			if _, err := catalog.ReadLink(row.body); err != nil {
				t.Errorf("%q, line %d: the API refuses %q: %v", file, row.line, row.body, err)
			}
			if again, err := row.validate("00000000-0000-7000-8000-000000000000"); err != nil || again.ShortCode != link.ShortCode {
				t.Errorf("%q, line %d: once %q, then %q, %v", file, row.line, link.ShortCode, again.ShortCode, err)
			}
		}
		t.Errorf("%q: more rows than lines", file)
	})
}
