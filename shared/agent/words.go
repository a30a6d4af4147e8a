package agent

// words are what parse looks for. The comment of each word names the document of its owner or, if there is none, the collection that
// it comes from:
//
//	cua    github.com/monperrus/crawler-user-agents
//	isbot  github.com/omrilotan/isbot, fixtures/browsers.yml
//	spy    npmjs.com/package/inapp-spy
//	uap    github.com/faisalman/ua-parser-js, its rules and test/data/ua
var words = []word{
	// Parts that most User-Agents have in common, so that parse passes over them in one step. Each has the flags of the words in it.
	{text: "Mozilla/5.0 ("},
	{text: "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/"},
	{text: "Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/", flags: notPhone},
	{text: "Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/", flags: isMac},
	{text: "Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/", platform: Android},
	{text: "iPhone; CPU iPhone OS ", platform: IOS},
	{text: "like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "},
	{text: "Mobile/15E148 ", flags: isMobile},
	{text: "Mobile Safari/537.36", flags: isBrowser},

	// RFC 9309, section 2.2.1, gives "Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)" as an example of a
	// crawler's User-Agent. Nearly all follow it: Googlebot, Twitterbot, Slackbot, LinkedInBot, TelegramBot, Discordbot, Applebot, …
	{text: "bot", boundary: endsWord, flags: isBot},
	{text: "Bot", boundary: endsWord, flags: isBot},
	{text: "BOT", boundary: endsWord, flags: isBot},
	{text: "://", flags: isBot},
	{text: "spider", flags: isBot},                      // cua: Baiduspider, Bytespider
	{text: "Spider", flags: isBot},                      // cua
	{text: "crawler", flags: isBot},                     // cua
	{text: "Crawler", flags: isBot},                     // cua
	{text: "facebookexternalhit", flags: isBot},         // developers.facebook.com/docs/sharing/webmasters/web-crawlers; iMessage, LINE and KakaoTalk send it too
	{text: "facebookcatalog", flags: isBot},             // same page
	{text: "meta-external", flags: isBot},               // same page: agent, ads, fetcher
	{text: "meta-webindexer", flags: isBot},             // same page
	{text: "WhatsApp", boundary: atStart, flags: isBot}, // cua; the sender's phone requests the preview
	{text: "Viber", boundary: atStart, flags: isBot},    // cua
	{text: "Preview/", flags: isBot},                    // bing.com/webmasters/help/which-crawlers-does-bing-use-8c184ec0; uap: Skype, Teams
	{text: "Snap URL Preview", flags: isBot},            // developers.snap.com/robots
	{text: "Slack-ImgProxy", flags: isBot},              // api.slack.com/robots
	{text: "Google-", flags: isBot},                     // developers.google.com/search/docs/crawling-indexing/google-user-triggered-fetchers
	{text: "-Google", flags: isBot},                     // developers.google.com/search/docs/crawling-indexing/google-special-case-crawlers
	{text: "GoogleOther", flags: isBot},                 // developers.google.com/search/docs/crawling-indexing/google-common-crawlers
	{text: "GoogleImageProxy", flags: isBot},            // uap: images in Gmail
	{text: "Cardyb", flags: isBot},                      // uap: Bluesky
	{text: "vkShare", flags: isBot},                     // vk.com/dev/Share
	{text: "Embedly", flags: isBot},                     // support.embed.ly
	{text: "Iframely", flags: isBot},                    // iframely.com/docs/about
	{text: "Mastodon/", flags: isBot},                   // cua
	{text: "Tumblr/", boundary: atStart, flags: isBot},  // cua
	{text: "Claude-", flags: isBot},                     // cua
	{text: "CUBOT"},                                     // isbot: a phone's name that contains "bot"
	{text: "Cubot"},                                     // uap

	{text: "Windows ", flags: notPhone},                      // gist.github.com/jacobrossi/74d3cc6b932c4f1889c7: a Windows Phone claims to be Android and iPhone
	{text: "AFT", boundary: afterNonLetter, flags: notPhone}, // developer.amazon.com/docs/fire-tv/user-agent-strings.html
	{text: "CrKey", flags: notPhone},                         // uap
	{text: "BRAVIA", flags: notPhone},                        // uap
	{text: "Android TV", flags: notPhone},                    // uap

	{text: "Android", platform: Android},                      // source.android.com/docs/compatibility/cdd, 3.4
	{text: "iPhone", platform: IOS},                           // uap
	{text: "iPad", platform: IOS},                             // uap
	{text: "iPod", platform: IOS},                             // uap
	{text: "CriOS/", platform: IOS, flags: isBrowser},         // chromium: ios/web/common/user_agent.mm
	{text: "FxiOS/", platform: IOS, flags: isBrowser},         // github.com/faisalman/ua-parser-js/issues/384
	{text: "EdgiOS/", platform: IOS, flags: isBrowser},        // github.com/faisalman/ua-parser-js/issues/384
	{text: "OPT/", flags: isBrowser},                          // isbot: Opera Touch
	{text: "Focus/", flags: isBrowser},                        // isbot: Firefox Focus
	{text: "Macintosh", flags: isMac},                         // uap
	{text: "Mobile/", flags: isMobile},                        // isbot: DuckDuckGo on an iPad
	{text: "Safari/", flags: isBrowser},                       // spy: an app's web view does not send it
	{text: "Firefox/", flags: isFirefox},                      // developer.mozilla.org/docs/Web/HTTP/Reference/Headers/User-Agent/Firefox
	{text: "wv)", boundary: afterNonLetter, flags: isWebView}, // source.android.com/docs/compatibility/cdd, 3.4.1

	{text: "FBAN/", browser: Facebook},                           // isbot
	{text: "FBAV/", browser: Facebook},                           // isbot
	{text: "FB_IAB/", browser: Facebook},                         // isbot
	{text: "MetaIAB ", browser: Facebook},                        // cua
	{text: "FBAN/Messenger", browser: Messenger},                 // npmjs.com/package/detect-inapp
	{text: "FB_IAB/MESSENGER", browser: Messenger},               // npmjs.com/package/detect-inapp
	{text: "FB_IAB/Orca", browser: Messenger},                    // uap
	{text: "MetaIAB Messenger", browser: Messenger},              // as MetaIAB Facebook
	{text: "Instagram ", browser: Instagram},                     // isbot
	{text: "MetaIAB Instagram", browser: Instagram},              // as MetaIAB Facebook
	{text: "Barcelona ", browser: Threads},                       // spy
	{text: "MetaIAB Threads", browser: Threads},                  // as MetaIAB Facebook
	{text: "musical_ly", browser: TikTok},                        // uap
	{text: "BytedanceWebview", browser: TikTok},                  // spy
	{text: "trill_", browser: TikTok},                            // isbot
	{text: "TikTok", browser: TikTok},                            // uap
	{text: "Snapchat", browser: Snapchat},                        // isbot
	{text: "LinkedInApp", browser: LinkedIn},                     // isbot
	{text: "Twitter for ", browser: X},                           // isbot
	{text: "TwitterAndroid", browser: X},                         // spy
	{text: "Pinterest/", browser: Pinterest},                     // isbot
	{text: "Line/", boundary: afterNonLetter, browser: Line},     // uap
	{text: "MicroMessenger/", browser: WeChat},                   // isbot
	{text: "GSA/", boundary: afterNonLetter, browser: GoogleApp}, // isbot
	{text: "GoogleApp/", browser: GoogleApp},                     // isbot
	{text: "KAKAOTALK", browser: OtherApp},                       // uap
	{text: "NAVER(inapp", browser: OtherApp},                     // isbot
	{text: "Telegram-Android/", browser: OtherApp},               // github.com/DrKLO/Telegram: it adds this to the User-Agent of Chrome
	{text: "WAiOS/", browser: OtherApp},                          // spy: WhatsApp
	{text: "WA4A/", browser: OtherApp},                           // spy: WhatsApp
}
