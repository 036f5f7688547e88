//! Letters and short words that only one of the languages has: what trigrams need a long text to find.

/// Letters that settle the language among those we know.
pub(super) const LETTERS: [(&str, &str); 8] = [
    ("cs", "řěů"),
    ("de", "ß"),
    ("es", "ñ¿¡"),
    ("fa", "پچژگکی"),
    ("hu", "őű"),
    ("pl", "łąęśźż"),
    ("pt", "ãõ"),
    ("tr", "ğış"),
];

/// Arabic letters that Persian does not write.
pub(super) const ARABIC_ONLY: &str = "ةىيكإ";

/// The commonest short words of the languages in Latin script, one vote each; a word may vote for several.
#[rustfmt::skip] // A table to read, many words a line.
pub(super) const WORDS: [(&str, &str); 10] = [
    ("en", "the a an and of to in is was are were be been it he she they we you i his her their my that this these those \
            with for on at by from not but or as have has had do did will would there what who which when where how"),
    ("de", "der die das den dem des ein eine einen einem und ist war sind nicht mit für auf im in zu von ich er sie wir \
            es du mein sein haben hat hatte wird auch als bei nach aus wie was wo so noch nur"),
    ("fr", "le la les un une des du de et est était sont ne pas que qui dans pour sur avec je il elle nous vous ils ce \
            cette mon ma mes son sa ses au aux plus par où quel quelle"),
    ("es", "el la los las un una unos unas y es era son no que de del en por para con se su sus mi mis lo al como más \
            pero muy donde está están qué he ha han había"),
    ("it", "il lo la gli le un una e è era sono non che di del della dei delle in per con si suo sua mio mia mie al alla \
            come più ma molto dove ho ha hanno tra dal nel che cosa questo"),
    ("pt", "o a os as um uma e é era são não que de do da dos das em no na nos nas por para com se seu sua meu minha \
            minhas mais mas muito onde está ao à numa ele ela"),
    ("nl", "de het een en is was zijn niet met voor op in te van ik hij ze we wij je jij mijn hebben heeft had wordt ook \
            als bij naar uit wat waar dat die er nog maar om aan over"),
    ("pl", "i w z na do nie się jest był była są to że co jak ale po od za przez dla czy ja on ona my ten ta mój tylko"),
    ("cs", "a v z na do se je byl byla jsou to že co jak ale po od za pro s k o jsem jsi jsme ten ta můj není jen"),
    ("hu", "a az egy és nem van volt hogy is de ez meg már csak még mint kell én ő mi ha vagy ki el be le hol"),
];

/// Turkish has few short words that stand apart; its letters do more.
pub(super) const TURKISH: &str =
    "ve bir bu da de için ile çok ne mi mu mı ama gibi daha var yok ben sen o biz hiç kadar";
