// Tells the console's other tabs that a sign-in has finished, then closes this tab if the browser lets it.
const tabs = new BroadcastChannel("deeplink-console")
tabs.postMessage("signed-in")
tabs.close()
window.close()
