// The parts of Deeplink.kt that depend on Android: a folder, the install referrer, and a call when the user leaves the app.
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
import java.io.File
import java.util.Locale
import java.util.TimeZone
import java.util.concurrent.Executor

/** Creates the app's one Deeplink; call it in Application.onCreate. Callbacks run on the main thread. */
fun deeplink(context: Context, options: Options): Deeplink {
    val app = context.applicationContext as Application
    val main = Handler(Looper.getMainLooper())
    val version = app.packageManager.getPackageInfo(app.packageName, 0).versionName ?: ""
    val device = mapOf(
        "platform" to "android", "osVersion" to Build.VERSION.RELEASE, "appVersion" to version, "model" to Build.MODEL,
        "locale" to Locale.getDefault().toLanguageTag(), "timezone" to TimeZone.getDefault().id
    ).mapValues { (_, value) -> value.take(64) }
    // A folder that is in no backup: restored to a new phone, it would make that phone the old device.
    val store = Files(File(app.noBackupFilesDir, "deeplink"))
    val deeplink = Deeplink(options, store, PlayReferrer(app), device, Executor { main.post(it) })
    app.registerActivityLifecycleCallbacks(Leaving(deeplink::flush))
    return deeplink
}

private class PlayReferrer(private val context: Context) : FirstRun {
    override fun referrer(then: (String?) -> Unit) {
        val client = InstallReferrerClient.newBuilder(context).build()
        var told = false
        fun tell(referrer: String?) {
            if (!told) then(referrer)
            told = true
        }
        // Some phones throw SecurityException: an app may not use the service of Google Play there.
        fun read(): String? = try {
            client.installReferrer.installReferrer ?: ""
        } catch (e: RemoteException) {
            null
        } catch (e: SecurityException) {
            null
        }
        val listener = object : InstallReferrerStateListener {
            override fun onInstallReferrerSetupFinished(code: Int) {
                tell(
                    when (code) {
                        InstallReferrerResponse.OK -> read()
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
        } catch (e: SecurityException) {
            tell(null)
        }
    }
}

/** Calls [left] when no activity of the app is visible. Android may end the process at any time after that. */
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
