// ---- words: English in the program, Persian here ----

const PERSIAN = {
  "live": "زنده", "Language": "زبان", "Skip to the run": "رفتن به اجرا", "This server asks for a token": "این سرور رمز می‌خواهد", "Enter": "ورود",
  "No run has logged anything here yet. This page shows one as soon as it does.": "هنوز هیچ اجرایی چیزی ننوشته است. به‌محض نوشتن، این‌جا دیده می‌شود.",
  "Runs": "اجراها", "Tick runs to lay their curves over each other.": "اجراها را علامت بزنید تا نمودارشان روی هم بیفتد.", "Overlay": "روی هم",
  "Run": "اجرا", "State": "وضعیت", "Step": "گام", "step": "گام", "at step": "در گام", "Loss": "خطا", "Last figures": "آخرین ارقام",
  "Now": "اکنون", "Save now": "همین حالا ذخیره کن", "Stop after saving": "ذخیره کن و بایست", "Note at this step": "یادداشت در این گام", "Write down": "بنویس",
  "Pipeline": "خط لوله", "at work": "در کار", "waits for something to do": "منتظر کار", "waits for room": "منتظر جا", "the model device stands idle": "دستگاه مدل بیکار است",
  "The last steps, as they ran": "گام‌های آخر، همان‌طور که اجرا شدند",
  "A run that was started with --live shows here what each stage did in the last seconds.": "اجرایی که با ‎--live آغاز شده باشد، کار هر مرحله را در ثانیه‌های آخر این‌جا نشان می‌دهد.",
  "Curves": "نمودارها", "Smoothing": "هموارسازی", "Log scale": "مقیاس لگاریتمی", "All steps": "همهٔ گام‌ها", "Add": "افزودن", "Remove": "حذف", "chart": "نمودار", "nothing yet": "هنوز هیچ",
  "Drag over a curve to look closer, double-click to see all. With the keyboard: arrows read values, + and − zoom, 0 shows all.": "برای دیدن جزئیات روی نمودار بکشید و برای دیدن همه دوبار کلیک کنید. با صفحه‌کلید: پیکان‌ها مقدارها را می‌خوانند، + و − بزرگ‌نمایی می‌کنند و 0 همه را نشان می‌دهد.",
  "Sound": "صدا", "The same words at every validation: hear it learn.": "همان کلمات در هر اعتبارسنجی: یادگیری‌اش را بشنوید.", "After step": "پس از گام", "Play the first through all steps": "پخش نخستین جمله در همهٔ گام‌ها",
  "Word error": "خطای واژه", "Heard": "شنیده شد", "instead of": "به‌جای", "left out": "جا افتاد", "put in": "افزوده شد", "Sounds still to be listened to": "صداهایی که هنوز شنیده نشده‌اند",
  "Word error is shown here where a recogniser has listened: myxtts live DIR --asr-command 'program {wav}', or the same flag of train --live.": "خطای واژه جایی نشان داده می‌شود که برنامه‌ای برای بازشناسی گفتار گوش داده باشد: ‎myxtts live DIR --asr-command 'program {wav}'‎ یا همین گزینه برای ‎train --live‎.",
  "Corpus": "پیکره", "What happened": "رویدادها",
  "running": "در حال اجرا", "ended": "پایان یافت", "stopped": "متوقف شد", "failed": "خطا داد", "killed": "کشته شد", "silent": "بی‌خبر",
  "epoch": "دور", "Epoch": "دور", "Time left": "زمان مانده", "Held-out loss": "خطای کنارگذاشته", "Speech a second": "گفتار در ثانیه", "of what it could do": "از توانش", "Readiness": "آمادگی",
  "Step time": "زمان گام", "Learning rate": "نرخ یادگیری", "Gradient norm": "نُرم گرادیان", "Data readiness": "آمادگی داده", "Padding": "پُرکُن", "GPU load": "بار GPU", "Power": "توان", "Clock": "فرکانس", "Temperature": "دما",
  "Memory, model role": "حافظهٔ نقش مدل", "Memory, data role": "حافظهٔ نقش داده", "Memory of the host": "حافظهٔ میزبان", "Memory": "حافظه", "Loss parts": "بخش‌های خطا", "Step-time variation (CV)": "تغییر زمان گام (CV)",
  "cap": "سقف", "Rank": "رتبه", "Loader": "بارگذار", "Host queue": "صف میزبان", "Features": "ویژگی‌ها", "Transfer": "انتقال", "Ring on the device": "حلقهٔ روی دستگاه", "Training step": "گام آموزش",
  "workers": "کارگر", "batches ready": "دستهٔ آماده", "empty": "خالی", "busy": "در کار", "waits": "منتظر", "of a step": "از یک گام", "trains": "آموزش", "starved": "بی‌داده", "idle": "بیکار",
  "Recording": "ضبط", "Spoken": "گفته‌شده", "Play": "پخش", "A/B": "الف/ب", "Durations": "مدت‌ها", "Speakers": "گوینده‌ها", "Languages": "زبان‌ها", "Left out, and notes": "کنارگذاشته‌ها و یادداشت‌ها", "Damaged": "خراب‌ها", "nothing": "هیچ",
  "clips": "کلیپ", "held out": "کنارگذاشته", "speakers": "گوینده", "hours": "ساعت", "minutes": "دقیقه", "connected": "متصل", "files are read": "پرونده‌ها خوانده می‌شوند", "The program that served this page is gone.": "برنامه‌ای که این صفحه را می‌داد رفته است.",
  "asked for": "درخواست شد", "All is well: batches are there when the model asks for them.": "همه‌چیز خوب است: دسته‌ها هنگام درخواست مدل آماده‌اند.",
};
let language = new URLSearchParams(location.search).get("lang") || localStorage.getItem("language") || (navigator.language.startsWith("fa") ? "fa" : "en");
const t = text => language === "fa" ? PERSIAN[text] ?? text : text;

/** Writes the words of the page itself, from left to right or from right to left. */
function speakLanguage() {
  document.documentElement.lang = language;
  document.documentElement.dir = language === "fa" ? "rtl" : "ltr";
  for (const element of document.querySelectorAll("[data-t]")) {
    element.dataset.t ||= element.textContent.trim();
    element.textContent = t(element.dataset.t);
  }
  for (const element of document.querySelectorAll("[data-placeholder]")) element.placeholder = t(element.dataset.placeholder);
  document.getElementById("language").value = language;
}
