package page

import (
	"errors"
	"html/template"
	"strings"

	"deeplink/edge/internal/matchtoken"
	"deeplink/shared/catalog"
	"deeplink/shared/qr"
)

// slotValues are the values of a link's slots and, to compute the size of a page, the longest values of a visit's slots. The value of
// slotWeb is the destination without a visitor's query.
type slotValues [slots]string

// Prepare returns what the pages of a link show: one text for each slot that a link fills, in the order of the slots, so that text i is
// the value of Slot(i). destination is where the link leads on the web. room is how many bytes of a page the escaped destination may
// take; it is 0 if there is none, or no room for it.
func Prepare(link *catalog.Link, config catalog.AppConfig, destination []byte) (texts []string, room int, err error) {
	v, err := prepare(link, config, destination)
	return v[:linkSlots], v.webRoom(), err
}

func prepare(link *catalog.Link, config catalog.AppConfig, destination []byte) (slotValues, error) {
	v := slotValues{
		slotWeb: template.HTMLEscapeString(string(destination)), slotNonce: strings.Repeat(" ", nonceLength),
		slotToken: strings.Repeat(" ", matchtoken.Length), slotApp: strings.Repeat(" ", maxAppName),
	}
	var description string
	if og := link.OG; og != nil {
		v.escape(slotTitle, og.Title)
		v.escape(slotImage, og.ImageURL)
		v.escape(slotDescription, og.Description)
		if og.Description != nil {
			description = *og.Description
		}
		if strings.HasPrefix(v[slotImage], "https://") {
			v[slotShownImage] = v[slotImage]
		}
	}
	v.escape(slotURL, &link.URL)
	scheme, address, _ := strings.Cut(v[slotURL], "://")
	path := appPath(link.Path)
	if ios := config.IOS; ios != nil {
		v[slotAppStore] = ifMatches(appStoreIDPattern, ios.AppStoreID)
		if v[slotIOSScheme] = appScheme(ios.Scheme); v[slotIOSScheme] != "" {
			v.escape(slotPath, &path)
		}
	}
	if android := config.Android; android != nil {
		v[slotPackage] = ifMatches(packageNamePattern, android.PackageName)
		if v[slotAndroidScheme] = appScheme(android.Scheme); v[slotAndroidScheme] != "" {
			v.escape(slotAndroidPath, &path)
		} else if v[slotPackage] != "" {
			// An app without its own scheme gets the short URL, as an App Link.
			v[slotAndroidScheme], v[slotAndroidPath] = scheme, address
		}
	}
	if len(destination) == 0 {
		code, err := qr.SVG(link.URL, qr.Defaults())
		if err != nil && !errors.Is(err, qr.ErrText) {
			return v, err
		}
		v[slotQR] = string(code)
		v[slotAddress] = strings.ReplaceAll(address, "/", "/<wbr>")
	}
	v.fit(description)
	return v, nil
}

func (v *slotValues) escape(s Slot, value *string) {
	if value != nil {
		v[s] = template.HTMLEscapeString(*value)
	}
}

// fewWords is the length of a description, in bytes, up to which it is worth more than an image.
const fewWords = 600

// fit removes values, the least important first, until every page is within maxPage. It removes only values that a page which is too
// large contains. At the end it restores removed values for which there is room after all.
func (v *slotValues) fit(description string) {
	whole := *v
	whole[slotDescription] = shortened(description, min(fewWords, len(v[slotDescription])))
	for page := v.tooLarge(); page != nil; page = v.tooLarge() {
		long := len(v[slotDescription])
		has := func(s Slot) bool { return page.times[s] > 0 && v[s] != "" }
		switch {
		case long > fewWords:
			v[slotDescription] = shortened(description, max(long-(page.of(v)-maxPage), fewWords))
		case has(slotShownImage):
			v[slotShownImage] = ""
		case has(slotImage):
			v[slotImage] = ""
		case has(slotQR):
			v[slotQR] = ""
		case long > 0:
			v[slotDescription] = ""
		case has(slotWeb):
			v[slotWeb] = ""
		// Without its path the app can still be opened through its store, and the match token brings the person to the link.
		case has(slotPath):
			v[slotPath], v[slotIOSScheme] = "", ""
		case has(slotAndroidPath):
			v[slotAndroidPath], v[slotAndroidScheme] = "", ""
		default:
			return
		}
	}
	v.restore(&whole)
}

// restore puts back the removed values for which there is room.
func (v *slotValues) restore(whole *slotValues) {
	for _, s := range []Slot{slotWeb, slotDescription, slotQR, slotImage, slotShownImage} {
		if v[s] != "" {
			continue
		}
		if v[s] = whole[s]; v.tooLarge() != nil {
			v[s] = ""
		}
	}
}

// tooLarge returns a page that is too large, or nil if there is none.
func (v *slotValues) tooLarge() *pageSize {
	for i := range pageSizes {
		if pageSizes[i].of(v) > maxPage {
			return &pageSizes[i]
		}
	}
	return nil
}

// excess returns by how many bytes the largest page exceeds maxPage. It is negative if all pages have room.
func (v *slotValues) excess() int {
	largest := 0
	for i := range pageSizes {
		largest = max(largest, pageSizes[i].of(v))
	}
	return largest - maxPage
}

// webRoom returns how many bytes of a page the escaped destination may take: 0 if fit removed it or there is no room.
func (v *slotValues) webRoom() int {
	if v[slotWeb] == "" {
		return 0
	}
	return max(0, len(v[slotWeb])-v.excess())
}

// shortened returns the start of a text, escaped, so that it takes at most limit bytes.
func shortened(text string, limit int) string {
	const more = "…"
	taken := len(more)
	for i, r := range text {
		if taken += len(template.HTMLEscapeString(string(r))); taken > limit {
			return template.HTMLEscapeString(strings.TrimSpace(text[:i])) + more
		}
	}
	return template.HTMLEscapeString(text)
}

// pageSize gives the largest size of a page: the length of its text, and how often it fills each slot, with or without a condition.
type pageSize struct {
	text  int
	times [slots]int
}

func (s *pageSize) of(v *slotValues) int {
	size := s.text
	for slot, times := range s.times {
		size += times * len(v[slot])
	}
	return size
}

// pageSizes has the size of each page that shows a link, in the language in which it is largest.
var pageSizes = func() (sizes [4]pageSize) {
	for i := range languages {
		l := &languages[i]
		for kind, p := range [4]*page{&l.preview, &l.ios, &l.android, &l.landing} {
			var text int
			var times [slots]int
			for _, piece := range p.pieces {
				text += len(piece.text)
				if piece.then == stepFill {
					times[piece.slot]++
				}
			}
			sizes[kind] = pageSize{max(sizes[kind].text, text), times}
		}
	}
	return sizes
}()
