"""Our own short passages in many languages; also as garbage's raw material."""

from __future__ import annotations

import random

from . import Half, family

OWN = "ours: written for this corpus"
TUNE = ("English", "German", "Russian", "Chinese", "Spanish")
PASSAGES: dict[str, str] = {
    "English": (
        "A lighthouse shows ships where the coast is dangerous and how to find a harbour at night. Its lamp turns with a rhythm of "
        "its own, so that sailors can tell one light from another. Before radio and satellites a keeper lived there and carried oil "
        "up the stairs each evening. Today most lights work by themselves and are visited a few times a year. They are still kept, "
        "because a light on a rock needs no receiver and cannot be jammed."
    ),
    "English two": (
        "Bread rises because yeast eats the sugar in the flour and gives off a gas. The dough is elastic, so the gas is caught in "
        "small bubbles that grow while it rests. In the oven the heat makes the bubbles swell once more, and then the starch sets "
        "around them. If the dough has stood too long, the walls of the bubbles break and the loaf falls in. A baker therefore "
        "watches the dough and not the clock."
    ),
    "German": (
        "Ein Fahrrad bleibt aufrecht, weil sein Fahrer ständig kleine Lenkbewegungen macht. Neigt es sich nach links, so lenkt er "
        "ein wenig nach links und bringt die Räder wieder unter den Schwerpunkt. Auch ohne Fahrer kann ein rollendes Rad eine Weile "
        "allein fahren, denn Nachlauf und Kreiselkräfte helfen dabei. Je langsamer es wird, desto größer werden die Bewegungen. Am "
        "Ende kippt es um, wie jedes Kind erfahren hat."
    ),
    "Russian": (
        "Море солёное, потому что реки тысячи лет приносят в него соли из горных пород. Вода испаряется и снова выпадает дождём, а "
        "соль остаётся. В реках её слишком мало, чтобы мы почувствовали вкус, но в океане она накапливается. Часть соли оседает на "
        "дно или уходит в раковины животных, поэтому море не становится солонее с каждым годом. В закрытых озёрах без стока соли "
        "бывает гораздо больше, чем в океане."
    ),
    "Chinese": (
        "面包在烤箱里会膨胀，是因为酵母吃掉面粉里的糖，放出气体。面团有弹性，气体就留在许多小气泡里，慢慢长大。烤箱的热使气泡再一次变大，"
        "然后淀粉凝固，面包就定了形。如果面团放得太久，气泡的壁会破，面包就会塌下去。所以好的面包师看的是面团，而不是钟表。"
        "在没有酵母的年代，人们把昨天剩下的面团留一点，第二天再用，这样做出来的面包带一点酸味，也能放得更久。"
    ),
    "Spanish": (
        "Un director de orquesta no toca ningún instrumento durante el concierto, pero decide cómo suena la música. Con una mano "
        "marca el compás y con la otra indica quién debe entrar y con qué fuerza. El trabajo más importante ocurre antes, en los "
        "ensayos, donde explica su idea de la obra. Los músicos lo miran de reojo mientras leen sus partes. Sin él, cien personas "
        "tendrían cien opiniones sobre el mismo silencio."
    ),
    "French": (
        "Les abeilles retrouvent leur ruche grâce au soleil, aux odeurs et à des repères du paysage. Une butineuse apprend d'abord "
        "les environs par de courts vols circulaires. Même quand le ciel est couvert, elle perçoit la lumière polarisée et sait où "
        "se trouve le soleil. De retour, elle danse pour indiquer aux autres la direction et la distance des fleurs. Le vent peut la "
        "détourner, mais elle corrige sa route sans effort."
    ),
    "Italian": (
        "Prima della carta si scriveva su pietra, argilla, papiro e pelle di animale. Le tavolette d'argilla erano pesanti, ma "
        "duravano più di qualsiasi altro materiale. Il papiro veniva dall'Egitto e si conservava bene soltanto nei paesi asciutti. "
        "Nel medioevo i monaci usavano la pergamena, che costava molto e si raschiava per scriverci di nuovo. La carta arrivò dalla "
        "Cina attraverso il mondo arabo e cambiò tutto in pochi secoli."
    ),
    "Portuguese": (
        "Os rios da Europa nascem nas montanhas e correm para mares muito diferentes. O Douro atravessa vinhas antigas antes de "
        "chegar ao oceano. O Danúbio passa por mais países do que qualquer outro e termina num grande delta. Durante séculos as "
        "cidades cresceram junto da água, porque era mais fácil levar mercadorias de barco. Hoje as margens são lugares de passeio, "
        "e as fábricas mudaram de sítio."
    ),
    "Polish": (
        "Latarnia morska pokazuje statkom drogę do portu i ostrzega przed skałami. Każda ma swój własny rytm błysków, więc żeglarze "
        "nie mylą jednej z drugą. Dawniej mieszkał w niej latarnik z rodziną, który co wieczór zapalał lampę. Dzisiaj większość "
        "działa sama, a ludzie przyjeżdżają tylko na przegląd. Mimo to turyści chętnie wchodzą po krętych schodach na samą górę."
    ),
    "Dutch": (
        "Een fiets blijft overeind doordat de rijder steeds een beetje bijstuurt. Helt hij naar rechts, dan stuurt hij naar rechts, "
        "en de wielen komen weer onder het zwaartepunt. In een vlak land met veel wind leert ieder kind dat vanzelf. Op een smalle "
        "dijk rijdt men het liefst achter elkaar. Wie stilstaat, zet een voet aan de grond en wacht op groen licht."
    ),
    "Finnish": (
        "Leipä kohoaa uunissa, koska hiiva muuttaa jauhojen sokerin kaasuksi. Taikina on kimmoisa, joten kaasu jää pieniin kupliin. "
        "Kuumuus paisuttaa kuplia vielä kerran ennen kuin tärkkelys jähmettyy. Jos taikina seisoo liian kauan, kuplien seinämät "
        "murtuvat ja leipä painuu kasaan. Siksi taitava leipuri katsoo taikinaa eikä kelloa."
    ),
    "Turkish": (
        "Deniz tuzludur, çünkü ırmaklar binlerce yıldır kayalardan çözünen tuzları taşır. Su buharlaşır ve yağmur olarak geri döner, "
        "ama tuz denizde kalır. Irmaklarda tuz o kadar azdır ki tadını almayız. Kapalı göllerde su dışarı akmadığı için tuz daha da "
        "çoğalır. Bu yüzden bazı göllerde insan hiç yüzmeden suyun üstünde durabilir."
    ),
    "Czech": (
        "Dirigent během koncertu na nic nehraje, a přece rozhoduje o tom, jak hudba zní. Jednou rukou udává takt a druhou naznačuje, "
        "kdo má nastoupit a jak silně. Nejdůležitější práci udělá předem při zkouškách. Hudebníci na něj hledí jen koutkem oka, "
        "protože čtou noty. Kdyby tam nestál, každý by měl na stejnou pomlku vlastní názor."
    ),
    "Hungarian": (
        "A méhek a nap állása, a szagok és a táj jelei alapján találnak haza. A fiatal gyűjtő először rövid körökben ismeri meg a "
        "kaptár környékét. Felhős időben is érzékeli a fény irányát, ezért tudja, hol jár a nap. Hazatérve tánccal mutatja meg a "
        "többieknek, merre és milyen messze vannak a virágok. A szél eltérítheti, de könnyen kijavítja az útját."
    ),
    "Ukrainian": (
        "Маяк показує кораблям шлях до гавані та попереджає про скелі. Кожен має власний ритм спалахів, тому моряки не плутають один "
        "з одним. Колись там жив доглядач із родиною і щовечора запалював лампу. Тепер більшість маяків працює сама, а люди "
        "приїздять лише для перевірки. Проте їх досі бережуть, бо світло на скелі не потребує приймача."
    ),
    "Bulgarian": (
        "Хлябът се надига, защото маята изяжда захарта в брашното и отделя газ. Тестото е еластично и газът остава в малки мехурчета. "
        "Топлината на фурната ги раздува още веднъж, преди нишестето да се втвърди. Ако тестото престои твърде дълго, стените се "
        "късат и хлябът спада. Затова добрият хлебар гледа тестото, а не часовника."
    ),
    "Greek": (
        "Ο φάρος δείχνει στα πλοία τον δρόμο προς το λιμάνι και τα προειδοποιεί για τα βράχια. Καθένας έχει τον δικό του ρυθμό, ώστε "
        "οι ναυτικοί να μην τους μπερδεύουν. Παλιά ζούσε εκεί ένας φαροφύλακας με την οικογένειά του. Σήμερα οι περισσότεροι φάροι "
        "λειτουργούν μόνοι τους. Οι άνθρωποι όμως ανεβαίνουν ακόμη τη στριφτή σκάλα για να δουν τη θάλασσα."
    ),
    "Japanese": (
        "海が塩からいのは、川が何千年ものあいだ岩の塩分を運んできたからです。水は蒸発して雨になり、また川にもどりますが、塩は海にのこります。"
        "川の水にも塩はふくまれていますが、とても少ないので味はわかりません。出口のない湖では塩がたまりつづけ、海よりずっと濃くなります。"
        "そのような湖では、泳げない人でも水面に浮かぶことができます。"
    ),
    "Korean": (
        "자전거가 쓰러지지 않는 것은 타는 사람이 끊임없이 핸들을 조금씩 움직이기 때문입니다. 왼쪽으로 기울면 왼쪽으로 살짝 돌려 바퀴를 무게중심 아래로 "
        "옮깁니다. 빨리 달릴수록 움직임은 작아지고 느려질수록 커집니다. 아이들은 넘어지면서 이것을 몸으로 배웁니다. 한번 배운 사람은 오랜 시간이 지나도 "
        "잊지 않습니다."
    ),
    "traditional Chinese": (
        "燈塔為船隻指引方向，也提醒水手注意岸邊的岩石。每座燈塔都有自己的節奏，因此航海的人不會把它們弄錯。從前守塔人和家人住在那裡，每天傍晚把油提上樓梯，"
        "點亮燈火。現在大多數燈塔已經自動運作，一年只需要檢查幾次。雖然有了衛星，人們仍然保留燈塔，因為岩石上的光不需要接收器，也不怕干擾。"
    ),
    "Vietnamese": (
        "Bánh mì nở trong lò vì men ăn đường trong bột và thải ra khí. Bột dẻo nên khí bị giữ lại trong những bong bóng nhỏ. Sức nóng "
        "làm bong bóng lớn thêm một lần nữa trước khi tinh bột đông lại. Nếu để bột quá lâu, thành bong bóng vỡ và ổ bánh xẹp xuống. "
        "Vì vậy người thợ giỏi nhìn bột chứ không nhìn đồng hồ."
    ),
    "Arabic": (
        "البحر مالح لأن الأنهار تحمل إليه الأملاح من الصخور منذ آلاف السنين. يتبخر الماء ثم يعود مطرا، أما الملح فيبقى في البحر. وفي "
        "الأنهار ملح أيضا، لكنه قليل فلا نشعر بطعمه. والبحيرات المغلقة يزداد ملحها عاما بعد عام. ولهذا يستطيع الإنسان أن يطفو فوق بعضها "
        "دون أن يعرف السباحة."
    ),
    "Hindi": (
        "समुद्र का पानी खारा होता है क्योंकि नदियाँ हज़ारों वर्षों से चट्टानों का नमक उसमें लाती हैं। पानी भाप बनकर उड़ जाता है और वर्षा बनकर लौटता है, पर नमक वहीं "
        "रह जाता है। नदियों में नमक इतना कम होता है कि हमें स्वाद नहीं आता। जिन झीलों से पानी बाहर नहीं बहता, वे और भी खारी हो जाती हैं। ऐसी झील में "
        "मनुष्य बिना तैरे भी ऊपर रह सकता है।"
    ),
    "Hebrew": (
        "המגדלור מראה לאוניות את הדרך לנמל ומזהיר אותן מפני סלעים. לכל מגדלור יש קצב משלו, ולכן המלחים אינם מתבלבלים. פעם גר בו שומר "
        "עם משפחתו והדליק את המנורה בכל ערב. היום רוב המגדלורים פועלים לבדם. אנשים עדיין מטפסים במדרגות כדי לראות את הים."
    ),
    "Swedish": (
        "En cykel håller sig upprätt därför att cyklisten hela tiden styr en aning. Lutar den åt vänster så styr man åt vänster, och "
        "hjulen kommer åter under tyngdpunkten. Ju långsammare det går, desto större blir rörelserna. Barn lär sig detta genom att "
        "ramla några gånger. Den som en gång har lärt sig glömmer det inte."
    ),
}
WORDS = {
    name: sorted({word.strip(".,，。¿?").casefold() for word in text.split()} - {""})
    for name, text in PASSAGES.items()
    if " " in text
}


def _told(name: str) -> None:
    half: Half = "tune" if name in TUNE else "test"

    def make(chance: random.Random, _asked: str) -> str:
        stop = "。" if "。" in PASSAGES[name] else "। " if "।" in PASSAGES[name] else ". "
        sentences = PASSAGES[name].split(stop)
        first = chance.randrange(len(sentences) - 1)
        return stop.join([*sentences[first:], *sentences[:first]])

    make.__name__ = f"{name}_prose"
    family(half, False, OWN)(make)


for _name in PASSAGES:
    _told(_name)
