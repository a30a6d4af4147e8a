package main

// words are what readWords looks for, each with the place where its owner documents it or, where none does, where it was collected:
//
//	cua    github.com/monperrus/crawler-user-agents
//	isbot  github.com/omrilotan/isbot, fixtures/browsers.yml
//	spy    npmjs.com/package/inapp-spy
//	uap    github.com/faisalman/ua-parser-js, its rules and test/data/ua
var words = []word{
	// What most agents have in common is passed over at once. It says what the words in it say.
	{text: "Mozilla/5.0 ("},
	{text: "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/"},
	{text: "Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/", clue: itsNoPhone},
	{text: "Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/", clue: itsMac},
	{text: "Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/", platform: android},
	{text: "iPhone; CPU iPhone OS ", platform: ios},
	{text: "like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "},
	{text: "Mobile/15E148 ", clue: itsMobile},
	{text: "Mobile Safari/537.36", clue: itsBrowser},

	// RFC 9309, 2.2.1, has "Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)" for how a crawler calls
	// itself. Nearly all do it so: Googlebot, Twitterbot, Slackbot, LinkedInBot, TelegramBot, Discordbot, Applebot, redditbot, …
	{text: "bot", place: endsWord, clue: itsBot},
	{text: "Bot", place: endsWord, clue: itsBot},
	{text: "BOT", place: endsWord, clue: itsBot},
	{text: "://", clue: itsBot},
	{text: "spider", clue: itsBot},                   // cua: Baiduspider, Bytespider
	{text: "Spider", clue: itsBot},                   // cua
	{text: "crawler", clue: itsBot},                  // cua
	{text: "Crawler", clue: itsBot},                  // cua
	{text: "facebookexternalhit", clue: itsBot},      // developers.facebook.com/docs/sharing/webmasters/web-crawlers; so say iMessage, LINE and KakaoTalk too
	{text: "facebookcatalog", clue: itsBot},          // there too
	{text: "meta-external", clue: itsBot},            // there too: agent, ads, fetcher
	{text: "meta-webindexer", clue: itsBot},          // there too
	{text: "WhatsApp", place: atFirst, clue: itsBot}, // cua; it is the sender's phone that asks
	{text: "Viber", place: atFirst, clue: itsBot},    // cua
	{text: "Preview/", clue: itsBot},                 // bing.com/webmasters/help/which-crawlers-does-bing-use-8c184ec0; uap: Skype, Teams
	{text: "Snap URL Preview", clue: itsBot},         // developers.snap.com/robots
	{text: "Slack-ImgProxy", clue: itsBot},           // api.slack.com/robots
	{text: "Google-", clue: itsBot},                  // developers.google.com/search/docs/crawling-indexing/google-user-triggered-fetchers
	{text: "-Google", clue: itsBot},                  // developers.google.com/search/docs/crawling-indexing/google-special-case-crawlers
	{text: "GoogleOther", clue: itsBot},              // developers.google.com/search/docs/crawling-indexing/google-common-crawlers
	{text: "GoogleImageProxy", clue: itsBot},         // uap: pictures in Gmail
	{text: "Cardyb", clue: itsBot},                   // uap: Bluesky
	{text: "vkShare", clue: itsBot},                  // vk.com/dev/Share
	{text: "Embedly", clue: itsBot},                  // support.embed.ly
	{text: "Iframely", clue: itsBot},                 // iframely.com/docs/about
	{text: "Mastodon/", clue: itsBot},                // cua
	{text: "Tumblr/", place: atFirst, clue: itsBot},  // cua
	{text: "Claude-", clue: itsBot},                  // cua
	{text: "CUBOT"},                                  // isbot: the name of a phone
	{text: "Cubot"},                                  // uap

	{text: "Windows ", clue: itsNoPhone},               // gist.github.com/jacobrossi/74d3cc6b932c4f1889c7: a Windows Phone says Android and iPhone
	{text: "AFT", place: afterBreak, clue: itsNoPhone}, // developer.amazon.com/docs/fire-tv/user-agent-strings.html
	{text: "CrKey", clue: itsNoPhone},                  // uap
	{text: "BRAVIA", clue: itsNoPhone},                 // uap
	{text: "Android TV", clue: itsNoPhone},             // uap

	{text: "Android", platform: android},               // source.android.com/docs/compatibility/cdd, 3.4
	{text: "iPhone", platform: ios},                    // uap
	{text: "iPad", platform: ios},                      // uap
	{text: "iPod", platform: ios},                      // uap
	{text: "CriOS/", platform: ios, clue: itsBrowser},  // chromium: ios/web/common/user_agent.mm
	{text: "FxiOS/", platform: ios, clue: itsBrowser},  // github.com/faisalman/ua-parser-js/issues/384
	{text: "EdgiOS/", platform: ios, clue: itsBrowser}, // github.com/faisalman/ua-parser-js/issues/384
	{text: "OPT/", clue: itsBrowser},                   // isbot: Opera Touch
	{text: "Focus/", clue: itsBrowser},                 // isbot: Firefox Focus
	{text: "Macintosh", clue: itsMac},                  // uap
	{text: "Mobile/", clue: itsMobile},                 // isbot: DuckDuckGo on an iPad
	{text: "Safari/", clue: itsBrowser},                // spy: the web view of an app has none
	{text: "Firefox/", clue: itsFirefox},               // developer.mozilla.org/docs/Web/HTTP/Reference/Headers/User-Agent/Firefox
	{text: "wv)", place: afterBreak, clue: itsWebView}, // source.android.com/docs/compatibility/cdd, 3.4.1

	{text: "FBAN/", browser: facebook},                    // isbot
	{text: "FBAV/", browser: facebook},                    // isbot
	{text: "FB_IAB/", browser: facebook},                  // isbot
	{text: "MetaIAB ", browser: facebook},                 // cua
	{text: "FBAN/Messenger", browser: messenger},          // npmjs.com/package/detect-inapp
	{text: "FB_IAB/MESSENGER", browser: messenger},        // npmjs.com/package/detect-inapp
	{text: "FB_IAB/Orca", browser: messenger},             // uap
	{text: "MetaIAB Messenger", browser: messenger},       // as MetaIAB Facebook
	{text: "Instagram ", browser: instagram},              // isbot
	{text: "MetaIAB Instagram", browser: instagram},       // as MetaIAB Facebook
	{text: "Barcelona ", browser: threads},                // spy
	{text: "MetaIAB Threads", browser: threads},           // as MetaIAB Facebook
	{text: "musical_ly", browser: tiktok},                 // uap
	{text: "BytedanceWebview", browser: tiktok},           // spy
	{text: "trill_", browser: tiktok},                     // isbot
	{text: "TikTok", browser: tiktok},                     // uap
	{text: "Snapchat", browser: snapchat},                 // isbot
	{text: "LinkedInApp", browser: linkedin},              // isbot
	{text: "Twitter for ", browser: twitter},              // isbot
	{text: "TwitterAndroid", browser: twitter},            // spy
	{text: "Pinterest/", browser: pinterest},              // isbot
	{text: "Line/", place: afterBreak, browser: line},     // uap
	{text: "MicroMessenger/", browser: wechat},            // isbot
	{text: "GSA/", place: afterBreak, browser: googleApp}, // isbot
	{text: "GoogleApp/", browser: googleApp},              // isbot
	{text: "KAKAOTALK", browser: otherApp},                // uap
	{text: "NAVER(inapp", browser: otherApp},              // isbot
	{text: "Telegram-Android/", browser: otherApp},        // github.com/DrKLO/Telegram: it sets this beside the agent of Chrome
	{text: "WAiOS/", browser: otherApp},                   // spy: WhatsApp
	{text: "WA4A/", browser: otherApp},                    // spy: WhatsApp
}
