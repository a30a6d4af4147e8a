package api

import (
	"bytes"
	"encoding/xml"
	"image"
	"image/color"
	_ "image/png"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// scan reads the QR code in an image.
func scan(t *testing.T, img image.Image) string {
	t.Helper()
	bitmap, err := gozxing.NewBinaryBitmapFromImage(img)
	if err != nil {
		t.Fatal(err)
	}
	// The image contains only the code. Without this hint, the reader occasionally misplaces the grid.
	hints := map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true}
	result, err := qrcode.NewQRCodeReader().Decode(bitmap, hints)
	if err != nil {
		t.Fatalf("no QR code found: %v", err)
	}
	return result.GetText()
}

// rasterize draws an SVG with one path of horizontal runs, eight pixels per unit.
func rasterize(t *testing.T, svg []byte) image.Image {
	t.Helper()
	var document struct {
		ViewBox string `xml:"viewBox,attr"`
		Paths   []struct {
			D string `xml:"d,attr"`
		} `xml:"path"`
	}
	if err := xml.Unmarshal(svg, &document); err != nil {
		t.Fatalf("%v in %s", err, svg)
	}
	if len(document.Paths) != 1 {
		t.Fatalf("%d paths, expected one", len(document.Paths))
	}
	const scale = 8
	side, err := strconv.Atoi(strings.Fields(document.ViewBox)[2])
	if err != nil {
		t.Fatal(err)
	}
	canvas := image.NewGray(image.Rect(0, 0, side*scale, side*scale))
	for i := range canvas.Pix {
		canvas.Pix[i] = 0xff
	}
	for run := range strings.SplitSeq(strings.TrimPrefix(document.Paths[0].D, "M"), "M") {
		at, length, found := strings.Cut(run, "h")
		x, y, found2 := strings.Cut(at, " ")
		length, _, found3 := strings.Cut(length, "v")
		if !found || !found2 || !found3 {
			t.Fatalf("run %q", run)
		}
		for dx := range number(t, length) * scale {
			for dy := range scale {
				canvas.SetGray(number(t, x)*scale+dx, number(t, y)*scale+dy, color.Gray{})
			}
		}
	}
	return canvas
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestQRCodesOfBothKindsDecodeToTheShortURL(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	c := w.serve().client(*organization.ServerKey)
	domain, _, _, err := w.Store.AddDomain(t.Context(), testenv.Actor, organization.ID, store.Unconditional, "links.example.org", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range []catalog.Link{
		c.CreateLink(`{"path":"/a"}`),
		c.CreateLink(`{"path":"/b","shortCode":"` + repeat("Ab-_", 16) + `"}`),
		c.CreateLink(`{"path":"/c","domainId":"` + domain.ID + `"}`),
	} {
		for _, query := range []string{"", "?size=300&level=H", "?size=2048&margin=0&level=L", "?fg=102030&bg=f0F0f0", "?margin=16&level=Q"} {
			svg := c.Do("GET", "/links/"+link.ID+"/qr.svg"+query, "")
			if svg.Status != http.StatusOK || svg.Header.Get("Content-Type") != "image/svg+xml" {
				t.Fatalf("qr.svg%s: %s", query, svg)
			}
			if got := scan(t, rasterize(t, svg.Body)); got != link.URL {
				t.Errorf("qr.svg%s contains %q, expected %q", query, got, link.URL)
			}
			png := c.Do("GET", "/links/"+link.ID+"/qr.png"+query, "")
			if png.Status != http.StatusOK || png.Header.Get("Content-Type") != "image/png" {
				t.Fatalf("qr.png%s: %d %v", query, png.Status, png.Header)
			}
			img, _, err := image.Decode(bytes.NewReader(png.Body))
			if err != nil {
				t.Fatal(err)
			}
			if got := scan(t, img); got != link.URL {
				t.Errorf("qr.png%s contains %q, expected %q", query, got, link.URL)
			}
		}
	}
}

func TestQROptionsAreBounded(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Scale).ServerKey)
	link := c.CreateLink(`{"path":"/a"}`)
	long := c.CreateLink(`{"path":"/a","shortCode":"` + repeat("a", 64) + `"}`)
	for _, format := range []string{"/qr.svg", "/qr.png"} {
		for _, query := range []string{"?size=64&margin=0", "?size=2048", "?level=L", "?level=H", "?margin=0", "?margin=16", "?fg=000000&bg=FFFFFF", "?size=512&color=red"} {
			if r := c.Do("GET", "/links/"+link.ID+format+query, ""); r.Status != http.StatusOK {
				t.Errorf("%s%s: %d, expected 200", format, query, r.Status)
			}
		}
		for query, fields := range map[string]string{
			"?size=63": "size", "?size=2049": "size", "?size=": "size", "?size=1e3": "size", "?size=0x200": "size", "?size=-512": "size",
			"?size=99999999999999999999": "size", "?size=100&size=200": "size",
			"?level=m": "level", "?level=X": "level", "?level=": "level",
			"?margin=-1": "margin", "?margin=17": "margin", "?margin=a": "margin",
			"?fg=red": "fg", "?fg=%23000000": "fg", "?fg=12345": "fg", "?bg=1234567": "bg", "?bg=\"><script>": "bg",
			"?size=1&level=z&margin=99&fg=x&bg=y": "size,level,margin,fg,bg",
		} {
			r := c.Do("GET", "/links/"+link.ID+format+strings.NewReplacer(`"`, "%22", "<", "%3C", ">", "%3E").Replace(query), "")
			if r.Status != http.StatusBadRequest || r.Fields() != fields {
				t.Errorf("%s%s: %s, expected 400 with details of %s", format, query, r, fields)
			}
		}
	}
	// More modules than pixels: only a vector image can show them.
	const tight = "?size=64&level=H&margin=16"
	if r := c.Do("GET", "/links/"+long.ID+"/qr.svg"+tight, ""); r.Status != http.StatusOK {
		t.Errorf("SVG of a long URL in 64 pixels: %s, expected 200", r)
	}
	if r := c.Do("GET", "/links/"+long.ID+"/qr.png"+tight, ""); r.Status != http.StatusBadRequest || r.Fields() != "size" || r.Header.Get("ETag") != "" {
		t.Errorf("PNG of a long URL in 64 pixels: %s, expected 400", r)
	}
}

func TestQRCodeIsRevalidated(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Scale).ServerKey)
	link := c.CreateLink(`{"path":"/a"}`)
	seen := map[string]string{}
	for _, path := range []string{"/qr.svg", "/qr.png", "/qr.svg?size=100", "/qr.svg?margin=1", "/qr.svg?level=H", "/qr.svg?fg=ff0000", "/qr.svg?bg=ff0000"} {
		r := c.Do("GET", "/links/"+link.ID+path, "")
		tag := r.Header.Get("ETag")
		if other, taken := seen[tag]; tag == "" || taken || r.Header.Get("Cache-Control") != "private" {
			t.Errorf("%s: %v, expected a new ETag (not that of %q) and Cache-Control private", path, r.Header, other)
		}
		seen[tag] = path
		for _, test := range []struct {
			ifNoneMatch string
			status      int
		}{{tag, 304}, {"W/" + tag, 304}, {`"x", ` + tag, 304}, {"*", 304}, {`"x"`, 200}, {"", 200}} {
			var headers []string
			if test.ifNoneMatch != "" {
				headers = []string{"If-None-Match", test.ifNoneMatch}
			}
			again := c.Do("GET", "/links/"+link.ID+path, "", headers...)
			if again.Status != test.status || again.Header.Get("ETag") != tag || (test.status == 304) != (len(again.Body) == 0) {
				t.Errorf("%s with If-None-Match %s: %d %v, expected %d", path, test.ifNoneMatch, again.Status, again.Header, test.status)
			}
		}
	}
	same := c.Do("GET", "/links/"+link.ID+"/qr.svg?size=512&level=M&margin=4&fg=000000&bg=FFFFFF", "")
	if seen[same.Header.Get("ETag")] != "/qr.svg" {
		t.Errorf("explicit defaults have another ETag")
	}
	c.Do("PATCH", "/links/"+link.ID, `{"shortCode":"another"}`)
	for tag, path := range seen {
		if r := c.Do("GET", "/links/"+link.ID+path, "", "If-None-Match", tag); r.Status != http.StatusOK {
			t.Errorf("%s after the URL changed: %d, expected 200", path, r.Status)
		}
	}
	c.Do("DELETE", "/links/"+link.ID, "")
	for tag, path := range seen {
		if r := c.Do("GET", "/links/"+link.ID+path, "", "If-None-Match", tag); r.Status != http.StatusNotFound {
			t.Errorf("%s after the link was deleted: %d, expected 404", path, r.Status)
		}
	}
}
