// What Deeplink.kt needs of Android: preferences, the install referrer, and to know when the app is left.
// build.gradle: implementation("com.android.installreferrer:installreferrer:2.2"), and the permission INTERNET.
package com.example.deeplink

import android.app.Activity
import android.app.Application
import android.content.Context
import android.os.Build
import android.os.Bundle
import android.os.Handler
import android.os.Looper
import android.os.RemoteException
import com.android.installreferrer.api.InstallReferrerClient
import com.android.installreferrer.api.InstallReferrerClient.InstallReferrerResponse
import com.android.installreferrer.api.InstallReferrerStateListener
import java.util.Locale
import java.util.TimeZone
import java.util.concurrent.Executor

/** Makes the app's one Deeplink; call it in Application.onCreate. What it calls back is called on the main thread. */
fun deeplink(context: Context, options: Options): Deeplink {
    val app = context.applicationContext as Application
    val main = Handler(Looper.getMainLooper())
    val version = app.packageManager.getPackageInfo(app.packageName, 0).versionName ?: ""
    val device = mapOf(
        "platform" to "android", "osVersion" to Build.VERSION.RELEASE, "appVersion" to version, "model" to Build.MODEL,
        "locale" to Locale.getDefault().toLanguageTag(), "timezone" to TimeZone.getDefault().id
    ).mapValues { (_, value) -> value.take(64) }
    val deeplink = Deeplink(options, Preferences(app), PlayReferrer(app), device, Executor { main.post(it) })
    app.registerActivityLifecycleCallbacks(Leaving(deeplink::flush))
    return deeplink
}

/**
 * The shared preferences "deeplink". Exclude them from backups (dataExtractionRules, fullBackupContent: sharedpref, deeplink.xml), or a new phone
 * believes that it is the old one.
 */
private class Preferences(context: Context) : Store {
    private val kept = context.getSharedPreferences("deeplink", Context.MODE_PRIVATE)

    override fun get(key: String): String? = kept.getString(key, null)

    override fun set(key: String, value: String?) = kept.edit().putString(key, value).apply() // null removes

    override fun keys(prefix: String): List<String> = kept.all.keys.filter { it.startsWith(prefix) }.sorted()
}

private class PlayReferrer(private val context: Context) : FirstRun {
    override fun referrer(then: (String?) -> Unit) {
        val client = InstallReferrerClient.newBuilder(context).build()
        var told = false
        fun tell(referrer: String?) {
            if (!told) then(referrer)
            told = true
        }
        val listener = object : InstallReferrerStateListener {
            override fun onInstallReferrerSetupFinished(code: Int) {
                tell(
                    when (code) {
                        InstallReferrerResponse.OK -> try {
                            client.installReferrer.installReferrer ?: ""
                        } catch (e: RemoteException) {
                            null
                        }
                        InstallReferrerResponse.FEATURE_NOT_SUPPORTED -> "" // not from Google Play
                        else -> null
                    }
                )
                client.endConnection()
            }

            override fun onInstallReferrerServiceDisconnected() = tell(null)
        }
        try {
            client.startConnection(listener)
        } catch (e: SecurityException) { // some phones let nobody ask
            tell(null)
        }
    }
}

/** Notices that none of the app's activities is seen any more. Android may end the process at any time after that. */
private class Leaving(private val left: () -> Unit) : Application.ActivityLifecycleCallbacks {
    private var seen = 0

    override fun onActivityStarted(activity: Activity) {
        seen++
    }

    override fun onActivityStopped(activity: Activity) {
        if (--seen == 0) left()
    }

    override fun onActivityCreated(activity: Activity, state: Bundle?) {}
    override fun onActivityResumed(activity: Activity) {}
    override fun onActivityPaused(activity: Activity) {}
    override fun onActivitySaveInstanceState(activity: Activity, state: Bundle) {}
    override fun onActivityDestroyed(activity: Activity) {}
}
