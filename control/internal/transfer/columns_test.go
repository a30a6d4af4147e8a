package transfer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/shared/catalog"
)

func TestImportReadsTheFilesOfOtherServices(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file     string
		expected []string // shortCode, path, fallbackUrl, title, tags, og, utm and channel, isActive
		ignored  []string
	}{
		"Bitly": {
			"\ufeffLink,Custom Link,Destination URL,Title,Created Date,Tags,Clicks\r\n" +
				"https://bit.ly/3xYz,https://acme.co/Sale,https://shop.example/sale?utm_source=x,\"Sale, now\",2024-05-01,\"spring, sale\",12\r\n" +
				"bit.ly/4Abc,,https://shop.example,,2024-05-02,,0\r\n",
			[]string{
				`Sale /sale?utm_source=x https://shop.example/sale?utm_source=x Sale, now [spring sale] true`,
				`4Abc / https://shop.example  [] true`,
			},
			[]string{"Created Date", "Clicks"},
		},
		"the API of Bitly": {
			"created_at,id,link,custom_bitlinks,long_url,title,archived,tags\n" +
				"2024-05-01T00:00:00+0000,bit.ly/3xYz,https://bit.ly/3xYz,\"[\"\"http://acme.co/one\"\",\"\"http://acme.co/two\"\"]\",https://shop.example/a%20b,T,false,\"[\"\"x,y\"\"]\"\n",
			[]string{`one /a%20b https://shop.example/a%20b T [x,y] true`},
			[]string{"created_at", "id", "archived"},
		},
		"Dub": {
			"Short link,Destination URL,Clicks,Created at,Tags,Archived\n" +
				"https://dub.sh/launch,https://acme.example/launch,7,2024-05-01T00:00:00.000Z,\"a, b\",false\n",
			[]string{`launch /launch https://acme.example/launch  [a b] true`},
			[]string{"Clicks", "Created at", "Archived"},
		},
		"the API of Dub": {
			"domain,key,url,title,description,image,expiresAt,utm_source,utm_medium\n" +
				"dub.sh,try,https://acme.example/try,T,D,https://acme.example/i.png,2031-01-01T00:00:00.000Z,src,med\n",
			[]string{`try /try https://acme.example/try T [] true og T= D=D expiry 2031-01-01T00:00:00.000Z utm src/med/ channel `},
			nil,
		},
		"Branch": {
			"url,alias,$marketing_title,~channel,~feature,~campaign,~tags,$canonical_url,$desktop_url,$ios_url,$deeplink_path,$og_title,product_id\n" +
				"https://acme.app.link/xYz12,,First,Facebook,ads,Spring,\"a,b\",https://acme.example/c,https://acme.example/d,https://apps.apple.com/x,product/42,Shown,42\n" +
				"https://acme.app.link/named,named,Second,Some Newsletter,,,,https://acme.example/c?x=1,,,,,\n",
			[]string{
				`xYz12 product/42 https://acme.example/d First [a b] true og T=Shown D= utm Facebook/ads/Spring channel facebook`,
				`named /c?x=1 https://acme.example/c?x=1 Second [] true utm Some Newsletter// channel `,
			},
			[]string{"product_id"},
		},
		"rows that are no links": {
			"long_url,title,tags\n" +
				"https://acme.example/1,\"two\nlines\",\n" + "ftp://acme.example/2,,\n" + "https://acme.example/3,\xff,\n" + "https://acme.example/4\n" + "https://acme.example/5,a\"b,\n",
			[]string{`/4 https://acme.example/4  [] true`},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := OpenRows(strings.NewReader(test.file), CSV)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for {
				row, err := rows.next()
				if err != nil {
					break
				}
				if link, err := row.validate("00000000-0000-7000-8000-000000000000"); err == nil {
					got = append(got, summary(link))
				} else {
					t.Logf("line %d: %v", row.line, err)
				}
			}
			if diff := cmp.Diff(test.expected, got); diff != "" {
				t.Errorf("(-expected +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.ignored, rows.IgnoredColumns()); diff != "" {
				t.Errorf("ignored (-expected +got):\n%s", diff)
			}
		})
	}
}

// summary names what is set in a link. A code that was made for it is not.
func summary(l catalog.Link) string {
	s := fmt.Sprintf("%s %s %s %v %t", l.Path, orEmpty(l.FallbackURL), orEmpty(l.Title), l.Tags, l.IsActive)
	if len(l.ShortCode) != derivedLength {
		s = l.ShortCode + " " + s
	}
	if l.OG != nil {
		s += fmt.Sprintf(" og T=%s D=%s", orEmpty(l.OG.Title), orEmpty(l.OG.Description))
	}
	if l.Expiry != nil {
		s += " expiry " + l.Expiry.Format(catalog.TimeFormat)
	}
	if l.UTMSource != nil || l.Channel != nil {
		s += fmt.Sprintf(" utm %s/%s/%s channel %s", orEmpty(l.UTMSource), orEmpty(l.UTMMedium), orEmpty(l.UTMCampaign), orEmpty(l.Channel))
	}
	return s
}
