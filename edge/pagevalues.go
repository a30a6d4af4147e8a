package main

import (
	"errors"
	"html/template"
	"strings"

	"deeplink/shared/catalog"
	"deeplink/shared/matchtoken"
	"deeplink/shared/qr"
)

// pageValues is what the slots of a link's pages are filled with: those of the link itself, and to know the size of a page, those of a
// visit at their longest. Of slotWeb that is the destination as it is without the visitor's query.
type pageValues [slots]string

func readPageValues(link *catalog.Link, config catalog.AppConfig, to destination) (pageValues, error) {
	v := pageValues{
		slotWeb: template.HTMLEscapeString(string(to.location)), slotNonce: strings.Repeat(" ", nonceLength),
		slotToken: strings.Repeat(" ", matchtoken.Length), slotApp: strings.Repeat(" ", maxAppName),
	}
	var description string
	if og := link.OG; og != nil {
		v.escape(slotTitle, og.Title)
		v.escape(slotPicture, og.ImageURL)
		v.escape(slotDescription, og.Description)
		if og.Description != nil {
			description = *og.Description
		}
		if strings.HasPrefix(v[slotPicture], "https://") {
			v[slotImage] = v[slotPicture]
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
			// An app without a scheme of its own is asked whether it takes the short URL, as an App Link.
			v[slotAndroidScheme], v[slotAndroidPath] = scheme, address
		}
	}
	if len(to.location) == 0 {
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

func (v *pageValues) escape(s slot, value *string) {
	if value != nil {
		v[s] = template.HTMLEscapeString(*value)
	}
}

// fewWords is how much of a description, in bytes, is worth more than a picture.
const fewWords = 600

// fit leaves out of each page that is too large what is missed least there. What other pages have of it they keep, but for a
// description and a picture, which all have. What was left out for nothing comes back at the end.
func (v *pageValues) fit(description string) {
	whole := *v
	whole[slotDescription] = shortened(description, min(fewWords, len(v[slotDescription])))
	for page := v.tooLarge(); page != nil; page = v.tooLarge() {
		long := len(v[slotDescription])
		has := func(s slot) bool { return page.times[s] > 0 && v[s] != "" }
		switch {
		case long > fewWords:
			v[slotDescription] = shortened(description, max(long-(page.of(v)-maxPage), fewWords))
		case has(slotImage):
			v[slotImage] = ""
		case has(slotPicture):
			v[slotPicture] = ""
		case has(slotQR):
			v[slotQR] = ""
		case long > 0:
			v[slotDescription] = ""
		case has(slotWeb):
			v[slotWeb] = ""
		// The app is opened through its store only, which the path comes through as well, with the token.
		case has(slotPath):
			v[slotPath], v[slotIOSScheme] = "", ""
		case has(slotAndroidPath):
			v[slotAndroidPath], v[slotAndroidScheme] = "", ""
		default:
			return
		}
	}
	v.takeBack(&whole)
}

// takeBack takes what there is room for.
func (v *pageValues) takeBack(whole *pageValues) {
	for _, s := range []slot{slotWeb, slotDescription, slotQR, slotPicture, slotImage} {
		if v[s] != "" {
			continue
		}
		if v[s] = whole[s]; v.tooLarge() != nil {
			v[s] = ""
		}
	}
}

// tooLarge returns a page that is too large, or nil.
func (v *pageValues) tooLarge() *pageSize {
	for i := range pageSizes {
		if pageSizes[i].of(v) > maxPage {
			return &pageSizes[i]
		}
	}
	return nil
}

// excess returns by how many bytes the largest page is too large; negative when all have room.
func (v *pageValues) excess() int {
	largest := 0
	for i := range pageSizes {
		largest = max(largest, pageSizes[i].of(v))
	}
	return largest - maxPage
}

// webRoom returns how much of a page the destination may take: what the others leave, 0 when it was left out or there is no room.
func (v *pageValues) webRoom() int {
	if v[slotWeb] == "" {
		return 0
	}
	return max(0, len(v[slotWeb])-v.excess())
}

// shortened returns as much of a text as takes at most so many bytes, escaped.
func shortened(text string, bytes int) string {
	const more = "…"
	taken := len(more)
	for i, r := range text {
		if taken += len(template.HTMLEscapeString(string(r))); taken > bytes {
			return template.HTMLEscapeString(strings.TrimSpace(text[:i])) + more
		}
	}
	return template.HTMLEscapeString(text)
}

// pageSize tells how large a page can be: its text, and how many times each slot stands in it, whether under a condition or not.
type pageSize struct {
	text  int
	times [slots]int
}

func (s *pageSize) of(v *pageValues) int {
	size := s.text
	for slot, times := range s.times {
		size += times * len(v[slot])
	}
	return size
}

// pageSizes has one for each page that a link has values for, in the language in which it is largest.
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
